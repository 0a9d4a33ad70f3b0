"""top, live on a terminal and in one frame; stats --upcoming."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from delayq.cli.pulse import Look, pulse
from delayq.cli.screen import COLUMNS, table
from delayq.cli.upcoming import sparkline

from delayq import Outgoing, Queue, QueueStats, Upcoming
from delayq.times import from_ms
from tests.cli.conftest import SECONDS, Invoke, Start
from tests.servers import RedisServer

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"  # the screen that a program has for itself


@dataclass
class Terminal:
    """A terminal on which `delayq top` runs."""

    process: subprocess.Popen[str]
    control: int
    settings: Any
    shown: str = ""

    def until(self, pattern: str) -> str:
        """Read until something is shown, colours left out; return all that was."""
        deadline = time.monotonic() + SECONDS
        while not re.search(pattern, plain(self.shown)):
            assert self.read(deadline - time.monotonic()), plain(self.shown)
        return plain(self.shown)

    def read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.control], [], [], max(0, seconds))
        try:
            part = os.read(self.control, 65_536) if ready else b""
        except OSError:  # how Linux says that the last user is gone
            part = b""
        self.shown += part.decode(errors="replace")
        return bool(part)

    def gone(self) -> int:
        """Read until the screen is given back; return the exit code."""
        while LEAVE not in self.shown:
            assert self.read(SECONDS)
        return self.process.wait(timeout=SECONDS)

    def press(self, key: str) -> None:
        os.write(self.control, key.encode())


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(start: Start, environment: dict[str, str]) -> Iterator[Open]:
    """``terminal("emails", columns=…)``: top on a terminal of its own."""
    opened: list[int] = []

    def run(*words: str, columns: int = 160, lines: int = 24) -> Terminal:
        control, end = pty.openpty()
        opened.extend((control, end))
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        own = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
        command = ("top", "--interval", "100ms", *words)
        process = start(*command, env=own | {"TERM": "xterm"}, stdin=end, stdout=end, stderr=end)
        return Terminal(process, control, termios.tcgetattr(end))

    yield run
    for each in opened:
        os.close(each)


def plain(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


def test_live_view_follows_what_happens_until_q_is_pressed(terminal: Open, queue: Queue):
    queue.send_many([Outgoing("x", delay=60)] * 7)
    view = terminal()
    told = view.until(r"emails +7 +0 +0 +0 +0 ")
    assert "1 queue · every 100ms · q quits" in told
    assert re.search(r"queue +pending ready unack retry dead sent/s acked/s failed/s late 50% late 99% next due", told)
    queue.send_many([Outgoing("x")] * 5)
    queue.ack(queue.receive(3))
    assert "sent/s" in view.until(r"emails +7 +2 +0 +0 +0 ")
    queue.pause()
    view.until(r"emails +7 +2 +0 +0 +0 .* paused")
    view.press("x")  # no other key ends it
    queue.resume()
    view.until(r"emails +7 +2 +0 +0 +0 .* in \d+s")
    view.press("q")
    assert view.gone() == 0
    assert view.shown.index(ENTER) < view.shown.index("emails") < view.shown.index(LEAVE)
    assert termios.tcgetattr(view.control) == view.settings


@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_terminal_is_as_before_after_a_signal(end: signal.Signals, code: int, terminal: Open, queue: Queue):
    queue.send("x")
    view = terminal()
    view.until("emails")
    view.process.send_signal(end)
    assert view.gone() == code
    assert termios.tcgetattr(view.control) == view.settings


def test_queue_that_cannot_be_read_any_more_is_told_of_and_looked_at_again(
    terminal: Open, queue: Queue, redis_client: Any
):
    queue.send("x")
    view = terminal()
    view.until("emails +1 ")
    stats = queue.core.shards[0].keys.stats
    redis_client.rename(stats, f"{stats}-kept")
    redis_client.set(stats, "no hash")
    view.until("emails: .*WRONGTYPE")
    redis_client.rename(f"{stats}-kept", stats)
    queue.send("x")
    view.until("emails +2 ")
    view.press("q")
    assert view.gone() == 0


def test_queues_that_have_no_room_are_counted(terminal: Open, server: RedisServer):
    for number in range(12):
        with Queue(f"queue-{number:02}", url=server.url) as each:
            each.send("x")
    view = terminal(lines=10)
    told = view.until("more: name those that you want to see")
    assert "6 more: name" in told
    assert "queue-05" in told
    assert "queue-06" not in told
    view.press("Q")
    assert view.gone() == 0


def test_one_frame_is_printed_in_a_pipe(invoke: Invoke, queue: Queue):
    queue.send_many([Outgoing("x", delay=60)] * 3)
    for words in ([], ["--once"], ["emails"]):
        result = invoke("top", "--interval", "100ms", *words)
        assert result.exit_code == 0
        head, line = result.stdout.splitlines()
        assert head.split()[:6] == ["queue", "pending", "ready", "unack", "retry", "dead"]
        assert line.split()[:9] == ["emails", "3", "0", "0", "0", "0", "0", "0", "0"]


def test_frame_of_json_holds_counts_rates_and_what_is_next(invoke: Invoke, queue: Queue):
    queue.send_many([Outgoing("x", delay=100), Outgoing("x")])
    words = ("top", "--json", "--interval", "100ms", "--window", "120s", "--bucket", "60s", "emails", "other", "emails")
    documents = [json.loads(line) for line in invoke(*words).stdout.splitlines()]
    assert [each["queue"] for each in documents] == ["emails", "other"]
    first = documents[0]
    assert (first["pending"], first["sent"], first["missing"]) == (2, 2, 0)
    assert first["per_second"] == {"sent": 0, "delivered": 0, "acked": 0, "failed": 0}
    assert (first["late_half"], first["late_most"]) == (None, None)
    assert [bucket["pending"] for bucket in first["upcoming"]] == [1, 1]


def test_no_queue_at_all_is_told(invoke: Invoke, server: RedisServer):
    assert server
    result = invoke("top", "--once", "--interval", "100ms")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no queue here: nothing was ever sent\n"


def test_queue_that_cannot_be_read_is_named_and_the_others_shown(invoke: Invoke, queue: Queue, redis_client: Any):
    queue.send("x")
    with Queue("newer", redis=redis_client) as newer:
        newer.send("x")
        redis_client.hset(newer.core.shards[0].keys.meta, "format", 99)
    result = invoke("top", "--once", "--interval", "100ms")
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 2)
    assert re.match(r"newer: .*format", result.stderr)


# What it works out


def bucket(pending: int, retry: int = 0) -> Upcoming:
    return Upcoming(starts_at=from_ms(0), ends_at=from_ms(1), pending=pending, retry=retry)


def seen(at: float, **stats: Any) -> Look:
    return Look(at, QueueStats(queue="q", **stats), [bucket(0)])


def test_rates_are_what_came_between_two_looks():
    before = seen(10, sent=100, delivered=50, acked=40, nacked=5, died=1, lease_lost=1)
    now = pulse(before, seen(12, sent=120, delivered=60, acked=48, nacked=7, died=2, lease_lost=4))
    assert (now.sent, now.delivered, now.acked, now.failed) == (10, 5, 4, 3)


def test_first_look_tells_no_rates_and_those_of_a_queue_made_anew_are_none():
    assert pulse(None, seen(1, sent=5)).sent is None
    assert pulse(seen(1, sent=500), seen(2, sent=5)).sent == 0


def test_lateness_is_that_of_the_hand_outs_since():
    before, now = seen(1, lateness={1: 1000, 4096: 5}), seen(2, lateness={1: 1000, 8: 60, 64: 40, 4096: 5})
    assert (pulse(before, now).late_half, pulse(before, now).late_most) == (0.008, 0.064)
    assert pulse(now, seen(3, lateness=dict(now.stats.lateness))).late_half is None


def test_columns_that_matter_least_give_way():
    pulses = [pulse(seen(1), seen(2))]
    shown = {width: [column.header for column in table(pulses, width).columns] for width in (200, 70, 40, 5)}
    assert shown[200] == list(COLUMNS)
    assert shown[70] == ["queue", "pending", "ready", "unack", "retry", "dead", "acked/s", "failed/s", "late 99%"]
    assert shown[40] == ["queue", "pending", "ready", "unack", "dead", "acked/s"]
    assert shown[5] == ["queue", "pending", "dead"]


@pytest.mark.parametrize(
    ("counts", "line"), [([0, 0], "  "), ([1, 1], "██"), ([0, 1, 500, 1000], " ▁▄█"), ([7, 8, 1], "▇█▁")]
)
def test_bars_are_as_high_as_buckets_are_full_and_nothing_alone_is_empty(counts: list[int], line: str):
    assert sparkline([bucket(count) for count in counts]) == line


# stats --upcoming


def test_upcoming_is_a_line_each_bucket(invoke: Invoke, queue: Queue):
    queue.send_many([Outgoing("x", delay=delay) for delay in (10, 130, 140)])
    queue.send("x")
    queue.receive()[0].nack(delay=10)
    lines = invoke("stats", "emails", "--upcoming", "--window", "3m", "--bucket", "1m").stdout.splitlines()
    assert lines[0].split() == ["due", "before", "pending", "retry"]
    assert [line.split(")")[1].split() for line in lines[1:]] == [
        ["1", "1", "█" * 30],
        ["0", "0"],
        ["2", "0", "█" * 30],
    ]
    assert "(in 3m)" in lines[3] or "(in 2m 59s)" in lines[3]


def test_upcoming_of_all_queues_leaves_out_what_is_empty(invoke: Invoke, queue: Queue, redis_client: Any):
    queue.send("x", delay=10)
    with Queue("other", redis=redis_client, shards=2) as other:
        other.send_many([Outgoing("x", delay=delay) for delay in (4000, 400, 400)])
    lines = invoke("stats", "--upcoming").stdout.splitlines()
    assert [(line.split()[0], line.split(")")[1].split()[0]) for line in lines[1:]] == [("emails", "1"), ("other", "2")]


def test_upcoming_is_told_as_json(invoke: Invoke, queue: Queue):
    queue.send("x", delay=301)
    documents = [json.loads(line) for line in invoke("stats", "emails", "--upcoming", "--json").stdout.splitlines()]
    assert [(each["queue"], each["pending"], each["retry"]) for each in documents] == [
        ("emails", int(number == 1), 0) for number in range(12)
    ]
    assert all(each["ends_at"] > each["starts_at"] for each in documents)


def test_nothing_that_falls_due_is_told(invoke: Invoke, queue: Queue, redis_client: Any):
    queue.send("x", delay=86_400)
    with Queue("other", redis=redis_client) as other:
        other.send("x", delay=86_400)
    result = invoke("stats", "--upcoming")
    assert (result.stdout, result.stderr) == ("", "nothing falls due\n")
