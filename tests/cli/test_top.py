"""top, live on a terminal and in one frame."""

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
import redis
from delayq.cli.connection import ServerOptions
from delayq.cli.top.command import TopWatch
from delayq.cli.top.state import KEYS

from delayq import NewRecord, Outgoing, Queue, Topic
from tests.cli.conftest import SECONDS, Invoke, Start
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"  # the alternate screen


@dataclass
class Terminal:
    """A terminal on which `delayq top` runs."""

    process: subprocess.Popen[str]
    control: int
    settings: Any
    shown: str = ""

    def until(self, pattern: str) -> str:
        """Read until a text is shown, without colours; return all that was shown."""
        deadline = time.monotonic() + SECONDS
        while not re.search(pattern, plain(self.shown)):
            assert self.read(deadline - time.monotonic()), plain(self.shown)
        return plain(self.shown)

    def read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.control], [], [], max(0, seconds))  # noqa: TID251
        try:
            part = os.read(self.control, 65_536) if ready else b""
        except OSError:  # how Linux says that the last user is gone
            part = b""
        self.shown += part.decode(errors="replace")
        return bool(part)

    def gone(self) -> int:
        """Read until the screen is restored; return the exit code."""
        while LEAVE not in self.shown:
            assert self.read(SECONDS)
        return self.process.wait(timeout=SECONDS)

    def press(self, key: str) -> None:
        self.shown = ""
        os.write(self.control, key.encode())

    def resize(self, columns: int, lines: int) -> None:
        self.shown = ""
        fcntl.ioctl(self.control, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)  # the kernel sends it only to the terminal's own session


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(start: Start, environment: dict[str, str]) -> Iterator[Open]:
    """``terminal("emails", columns=…)``: top on its own terminal."""
    opened: list[int] = []

    def run(*words: str, columns: int = 160, lines: int = 24, **variables: str) -> Terminal:
        control, end = pty.openpty()
        opened.extend((control, end))
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        own = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
        command = ("top", "--interval", "100ms", *words)
        process = start(*command, env=own | {"TERM": "xterm"} | variables, stdin=end, stdout=end, stderr=end)
        return Terminal(process, control, termios.tcgetattr(end))

    yield run
    for each in opened:
        os.close(each)


def frames(shown: str) -> list[str]:
    """The screens that were drawn."""
    return [plain(each) for each in shown.split("\x1b[H")]


def plain(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


def test_live_view_updates_until_q_is_pressed(terminal: Open, queue: Queue):
    queue.send_many([Outgoing("x", delay=3600)] * 7)
    view = terminal(columns=200)
    text = view.until(r"emails +7 +0 +0 +0 +0 ")
    assert "1 queue · every 100ms · q quits" in text
    counted = r"queue▲ +scheduled due running retrying dead +sent/s acked/s failed/s"
    header = rf"{counted} late 50% late 99% ran 99% overdue cons limits next due"
    assert re.search(header, text)
    queue.send_many([Outgoing("x")] * 5)
    queue.ack(queue.receive(3))
    assert "sent/s" in view.until(r"emails +7 +2 +0 +0 +0 ")
    queue.pause()
    view.until(r"emails +7 +2 +0 +0 +0 .* paused")
    assert view.shown.index(ENTER) < view.shown.index("emails")
    view.press("x")  # a key without a meaning
    queue.resume()
    view.until(r"emails +7 +2 +0 +0 +0 .* in 59m")
    view.press("q")
    assert view.gone() == 0
    assert termios.tcgetattr(view.control) == view.settings


@pytest.mark.full
@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_terminal_is_restored_after_a_signal(end: signal.Signals, code: int, terminal: Open, queue: Queue):
    queue.send("x")
    view = terminal()
    view.until("emails")
    view.process.send_signal(end)
    assert view.gone() == code
    assert termios.tcgetattr(view.control) == view.settings


@pytest.mark.full
def test_queue_that_becomes_unreadable_is_reported_and_read_again(terminal: Open, queue: Queue, redis_client: Any):
    queue.send("x")
    view = terminal()
    view.until("emails +0 +1 ")
    stats = queue._context.shards[0].keys.stats
    redis_client.rename(stats, f"{stats}-kept")
    redis_client.set(stats, "no hash")
    view.until("emails: .*WRONGTYPE")
    redis_client.rename(f"{stats}-kept", stats)
    queue.send("x")
    view.until("emails +0 +2 ")
    view.press("q")
    assert view.gone() == 0


@pytest.mark.full
def test_hidden_queues_are_counted(terminal: Open, server: RedisServer):
    for number in range(12):
        with Queue(f"queue-{number:02}", url=server.url) as each:
            each.send("x")
    view = terminal(lines=11)
    text = view.until("8 more \\(↑ ↓ to scroll\\)")
    assert ("queue-03" in text, "queue-04" in text) == (True, False)
    view.press("\x1b[F")  # End
    text = view.until("queue-11")
    assert "queue-07" not in frames(view.shown)[-1]
    view.resize(160, 30)
    view.until(r"queue-00(?s:.)*queue-11 ")
    view.press("Q")
    assert view.gone() == 0


@pytest.mark.full
def test_columns_fit_a_resized_terminal(terminal: Open, queue: Queue):
    queue.send("x")
    view = terminal(columns=160)
    view.until("failed/s")
    view.resize(40, 24)
    view.until(r"scheduled(?: due)? dead(?: trouble)? *\r?\n")
    view.press("q")
    assert view.gone() == 0


def test_queue_is_paused_by_a_key_and_topics_have_a_page(terminal: Open, queue: Queue, server: RedisServer):
    queue.send("x", delay=60)
    with Topic("orders", url=server.url) as topic:
        topic.group("mail", start="0")
        topic.publish("x")
    view = terminal()
    view.until(r"0 sent/s(?s:.)*emails")
    view.press("P")
    view.until("pause emails\\? y to confirm")
    view.press("y")
    view.until("paused")
    assert queue.stats().paused_since is not None
    view.press("P")
    view.until("resume emails\\? y to confirm")
    view.press("y")
    assert eventually(lambda: queue.stats().paused_since is None)
    view.press("t")
    view.until(r"orders +1 +1 +0 +0 +1 +0")
    view.press("q")
    assert view.gone() == 0


def test_topics_beyond_the_limit_are_counted(server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.cli.top.command.MOST_TOPICS", 1)
    for name in ("a", "b", "c"):
        with Topic(name, url=server.url) as topic:
            topic.publish("x")
    with ServerOptions(server.url, "delayq") as options:
        watch = TopWatch(options, [], 300, 15)
        assert [row.name for row in watch.topics()] == ["a"]
    assert watch.troubles == ["2 topics beyond the first 1 not shown"]


def test_pause_key_does_nothing_if_the_queue_has_changed_meanwhile(queue: Queue, server: RedisServer):
    queue.send("x", delay=60)
    with ServerOptions(server.url, "delayq") as options:
        watch = TopWatch(options, [], 300, 15)
        (row,) = watch.look()
        queue.pause(600)
        watch.pause_or_resume(row)
        assert queue.stats().paused_until is not None
        (row,) = watch.look()
        assert watch.troubles == ["emails has changed in the meantime: press P again"]
        watch.pause_or_resume(row)
        assert queue.stats().paused_since is None


def test_lag_unknown_to_the_server_is_counted_in_one_call_per_refresh(terminal: Open, server: RedisServer):
    with Topic("orders", url=server.url) as topic:
        second = topic.publish_many([NewRecord(number) for number in range(1_202)])[1]
        topic.group("mail").set_position(second.id)
    view = terminal()
    view.until("sent/s")
    view.press("t")
    view.until(r"orders +1,202 +1 +0 +0 +at least 1,000 +0")
    view.press("q")
    assert view.gone() == 0


def test_keys_sort_filter_and_open_a_queue(terminal: Open, queue: Queue, server: RedisServer):
    queue.send_many([Outgoing("x", delay=60)] * 3)
    with Queue("orders", url=server.url) as orders:
        orders.send_many([Outgoing("x")] * 5)
    view = terminal()
    view.until(r"queue▲(?s:.)*emails(?s:.)*orders")
    view.press(">")
    view.until(r"scheduled▼(?s:.)*emails +3(?s:.)*orders +0 +5")
    view.press("r")
    view.until(r"scheduled▲(?s:.)*orders +0 +5(?s:.)*emails +3")
    view.press("/")
    view.press("ORD")
    view.until(r"1 queue (?s:.)*orders +0 +5(?s:.)*/ORD█")
    view.press("\r")
    view.until("Esc shows all")
    view.press("\r")
    view.until(r"orders\s+A message has been due for .* there is no consumer(?s:.)*messages   0 scheduled, 5 due")
    view.press("\x1b")
    view.until("Esc shows all")
    view.press("\x1b")
    view.until(r"2 queues(?s:.)*emails")
    view.press("?")
    text = view.until("press any key to go back")
    assert all(key in text for key in KEYS)
    view.press("q")
    assert view.gone() == 0


@pytest.mark.full
def test_frozen_display_stays_until_it_is_resumed(terminal: Open, queue: Queue):
    queue.send("x", delay=60)
    view = terminal()
    view.until(r"emails +1 ")
    view.press("p")
    view.until("frozen: p resumes")
    queue.send("x", delay=60)
    view.press(">")  # it draws again without a new reading
    text = view.until(r"scheduled▼(?s:.)*emails +\d ")
    assert set(re.findall(r"emails +(\d) ", text)) == {"1"}  # the last of several frames may be half drawn
    view.press(" ")
    view.until(r"emails +2 ")
    view.press("p")
    queue.send("x", delay=60)
    view.until(r"emails +3 ")
    view.press("q")
    assert view.gone() == 0


COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


@pytest.mark.full
@pytest.mark.parametrize(("variables", "has_colour"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_turns_colours_off(variables: dict[str, str], has_colour: bool, terminal: Open, queue: Queue):
    queue.send("x")
    view = terminal(**variables)
    view.until("no-consumer")
    assert bool(COLOUR.search(view.shown)) == has_colour
    view.press("q")
    assert view.gone() == 0


def test_one_frame_is_printed_in_a_pipe(invoke: Invoke, queue: Queue):
    queue.send_many([Outgoing("x", delay=60)] * 3)
    for words in ([], ["--once"], ["emails"]):
        result = invoke("top", "--interval", "100ms", *words)
        assert result.exit_code == 0
        head, line = result.stdout.splitlines()
        assert head.split()[:6] == ["queue", "scheduled", "due", "running", "retrying", "dead"]
        assert line.split()[:9] == ["emails", "3", "0", "0", "0", "0", "0", "0", "0"]


def test_json_frame_has_counts_rates_and_upcoming(invoke: Invoke, queue: Queue):
    queue.send_many([Outgoing("x", delay=100), Outgoing("x")])
    words = ("top", "--json", "--interval", "100ms", "--window", "120s", "--bucket", "60s", "emails", "other", "emails")
    documents = [json.loads(line) for line in invoke(*words).stdout.splitlines()]
    assert [each["queue"] for each in documents] == ["emails", "other"]
    first = documents[0]
    assert (first["pending"], first["sent"], first["missing"]) == (2, 2, 0)
    assert first["per_second"] == {"sent": 0, "delivered": 0, "acked": 0, "failed": 0}
    assert [first[name] for name in ("late_half", "late_most", "ran_half", "ran_most")] == [None] * 4
    assert first["consumers_alive"] == 0
    assert first["troubles"][0]["code"] == "no-consumer"  # if the machine is slow, a message is late, too
    assert [bucket["pending"] for bucket in first["upcoming"]] == [1, 1]


def test_server_without_queues_gets_a_note(invoke: Invoke, server: RedisServer):
    assert server
    result = invoke("top", "--once", "--interval", "100ms")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no queues\n"


def test_unreadable_queue_is_named_and_the_others_are_shown(invoke: Invoke, queue: Queue, redis_client: Any):
    queue.send("x")
    with Queue("newer", redis=redis_client) as newer:
        newer.send("x")
        redis_client.hset(newer._context.shards[0].keys.meta, "format", 99)
    result = invoke("top", "--once", "--interval", "100ms")
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 2)
    assert re.match(r"newer: .*format", result.stderr)


def test_user_who_may_not_scan_watches_the_queues_in_the_registry(
    terminal: Open, queue: Queue, redis_client: redis.Redis, redis_server: RedisServer
):
    queue.send("x")
    redis_client.execute_command("ACL", "SETUSER", "watcher", "reset", "on", ">secret", "~*", "+@all", "-scan")
    view = terminal("--url", f"unix://watcher:secret@{redis_server.socket}")
    view.until(r"SCAN|'scan'")
    assert "scan" in view.until(r"emails +0 +1 ").lower()
    view.press("q")
    assert view.gone() == 0
    redis_client.acl_deluser("watcher")
