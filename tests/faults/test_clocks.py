"""Wrong clocks: a process uses the one it is given, and a clock remembers what it showed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.harness.chaos.clocks import WrongClock, true_time
from tests.harness.chaos.history import Event
from tests.harness.chaos.scenarios.server_clock import STALE, early
from tests.harness.chaos.world import ROOT

LOOKS = """
import sys
from pathlib import Path

from tests.harness.chaos.clocks import read_offset, true_time
from tests.harness.chaos.programs.clocked import set_wrong

now = lambda: true_time() + read_offset(Path(sys.argv[1]))
old = __import__("datetime").datetime(2026, 1, 1)
set_wrong(now)

import calendar
import datetime as dt
import time
from datetime import datetime

began = true_time()
looks = [time.time(), time.time_ns() / 1e9, time.mktime(time.localtime()), calendar.timegm(time.gmtime())]
looks += [datetime.now().timestamp(), dt.datetime.now(dt.UTC).timestamp(), datetime.today().timestamp()]
looks += [calendar.timegm(dt.datetime.utcnow().timetuple()), now()]
ended = true_time()
assert isinstance(old, datetime) and isinstance(datetime.now(), datetime)
print(all(began + 59 <= look <= ended + 60.001 for look in looks))  # some know whole seconds alone
"""


def test_program_uses_the_wrong_clock_it_is_given(tmp_path: Path):
    clock = WrongClock(tmp_path / "clock", 60.0)
    command = [sys.executable, "-c", LOOKS, str(clock.path)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout == "True\n"


def test_clock_remembers_the_lowest_and_highest_time_it_showed(tmp_path: Path):
    clock = WrongClock(tmp_path / "clock")
    began, before = time.monotonic(), true_time()
    clock.set(-60.0)
    clock.set(60.0)
    ahead, after = time.monotonic(), true_time()
    lowest, highest = clock.shown(began, ahead)
    assert lowest / 1000 < after - 59 < before + 59 < highest / 1000
    assert min(clock.shown(ahead, ahead)) / 1000 > before + 59
    assert clock.offsets() == [0.0, -60.0, 60.0]


def test_message_handed_out_too_soon_is_found_once_the_time_before_a_step_back_is_stale(tmp_path: Path):
    clock = WrongClock(tmp_path / "clock")
    stepped = time.monotonic()
    clock.set(-60.0)
    for seconds, found in ((STALE / 2, []), (100 * STALE, ["a"])):
        sent = stepped + seconds
        due = clock.shown(sent, sent)[0] + 500  # ms
        events = [
            Event("attempted", sent, 1, "a"),
            Event("sent", sent, 1, "a", ms=due),
            Event("delivered", sent + 0.4, 2, "a"),
        ]
        assert early(events, ["a"], clock) == found
        in_time = [*events[:2], Event("delivered", sent + 0.6, 2, "a")]
        assert early(in_time, ["a"], clock) == []
