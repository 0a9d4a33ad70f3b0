"""demo ends by itself, its numbers balance, and it leaves nothing behind."""

from __future__ import annotations

import os
import pty
import re
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from delayq.cli.demo.display import PlainView
from delayq.cli.demo.messages import EXPECTED, TOTAL

from tests.cli.conftest import Start, read_all
from tests.harness.servers import RedisServer

SUMMARY = f"balance   {TOTAL} sent = {TOTAL - 3} acked + 1 cancelled + 1 expired + 0 purged + 1 inside\n"
PATIENCE = 120  # seconds; it takes eleven


@pytest.fixture
def scratch() -> Iterator[Path]:
    """An empty folder for temporary files, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="dq") as folder:
        yield Path(folder)


@pytest.fixture
def own_store(scratch: Path, environment: dict[str, str]) -> dict[str, str]:
    """An environment in which the demo uses its own store in the empty folder."""
    kept = {name: value for name, value in environment.items() if name != "DELAYQ_URL"}
    return kept | {"TMPDIR": str(scratch)}


def test_demo_in_a_pipe_prints_its_events_and_leaves_nothing_behind(
    scratch: Path, start: Start, own_store: dict[str, str]
):
    demo = start("demo", env=own_store)
    said, trouble = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, trouble) == (0, "")
    assert_ends_in_its_summary(said)
    assert_story_is_printed(said)
    assert list(scratch.iterdir()) == []


@pytest.mark.full
def test_demo_on_a_terminal_and_on_a_server(
    scratch: Path, start: Start, own_store: dict[str, str], server: RedisServer
):
    """Both at once, since each takes eleven seconds."""
    control, end = pty.openpty()
    live = start("demo", env=own_store | {"TERM": "xterm", "LINES": "40"}, stdout=end, stderr=end)
    on_server = start("demo", "--url", server.url)
    os.close(end)
    shown = read_all(control)
    elsewhere, _ = on_server.communicate(timeout=PATIENCE)
    assert (live.wait(), on_server.returncode) == (0, 0), shown
    for printed in (elsewhere, shown.replace("\r\n", "\n")):
        assert_ends_in_its_summary(printed)
    assert_table_moves(shown)
    assert list(scratch.iterdir()) == []
    with server.client() as client:
        assert client.dbsize() == 0


def test_lines_of_several_threads_are_in_order_of_time(monkeypatch: pytest.MonkeyPatch):
    lines, other = list[str](), threading.Thread(target=lambda: view.say("other"))

    def echo(line: str) -> None:
        if not other.ident:
            other.start()
            other.join(0.1)  # time in which it would print something if it could
        lines.append(line)

    view = PlainView()
    monkeypatch.setattr("click.echo", echo)
    view.say("first")
    other.join()
    assert [line.split()[1] for line in lines] == ["first", "other"]


def assert_ends_in_its_summary(printed: str) -> None:
    assert SUMMARY in printed
    assert re.search(r"lateness  half under \S+, all under \S+; none early\n", printed)
    assert printed.endswith("doctor    healthy\n")


def assert_story_is_printed(said: str) -> None:
    lines = said.splitlines()
    times = [float(match[1]) for line in lines if (match := re.match(r" *(\d+\.\d\d)s  ", line))]
    assert times == sorted(times)
    assert not any("\x1b" in line for line in lines)
    for event in (
        *(
            "mail-01   attempt 1 done: acked",
            "flaky-2   attempt 1 failed, retry in 800ms",
            "flaky-2   attempt 3 done: acked",
        ),
        *("doomed    attempt 3 failed, dead: no retry left", "unwanted is cancelled", "put-off is rescheduled"),
        *("code is rescheduled to 10s, but expires at 8s", "code      expired"),
    ):
        assert event in said
    assert "unwanted  attempt" not in said
    assert "code      attempt" not in said


def assert_table_moves(shown: str) -> None:
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", shown)
    counts = [int(count) for count in re.findall(r"^ acked +(\d+) ", plain, re.MULTILINE)]
    assert counts == sorted(counts)
    assert len(set(counts)) > 5
    assert counts[-1] == EXPECTED["acked"]


def test_interrupted_demo_leaves_nothing_behind(scratch: Path, start: Start, own_store: dict[str, str]):
    demo = start("demo", env=own_store)
    assert demo.stdout is not None
    while "attempt 1 done" not in demo.stdout.readline():
        assert demo.poll() is None
    demo.send_signal(signal.SIGINT)
    assert demo.wait(PATIENCE) == 1
    assert list(scratch.iterdir()) == []
