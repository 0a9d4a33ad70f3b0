"""cancel, reschedule, show and why for messages in a lake."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import Queue
from tests.cli.conftest import SECONDS, Invoke, Start, followed
from tests.conftest import StartServer
from tests.harness.lake.lakes import files
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

YEAR = 365 * 86_400
HOUR = 3600


@pytest.fixture
def far(server: RedisServer, tmp_path: Path) -> Iterator[Queue]:
    """The queue emails, whose message order-42 is in the lake for a year."""
    with Queue("emails", url=server.url, horizon=2 * HOUR, lake=tmp_path / "lake") as queue:
        queue.send({"to": "a@example.org"}, id="order-42", delay=YEAR)
        yield queue


@pytest.mark.usefixtures("far")
def test_message_in_the_lake_is_shown_only_with_the_lake(invoke: Invoke):
    shown = json.loads(invoke("show", "emails", "order-42", "--lake", "lake", "--json").stdout)
    assert (shown["state"], shown["payload"]) == ("deferred", {"to": "a@example.org"})
    assert "waits in" in invoke("why", "emails", "order-42", "--lake", "lake").stdout
    without = invoke("show", "emails", "order-42")
    assert (without.exit_code, "has no message 'order-42'" in without.stderr) == (1, True)


def test_message_in_the_lake_is_cancelled_once(invoke: Invoke, far: Queue):
    found = [invoke("cancel", "emails", "order-42", *words) for words in ([], ["--lake", "lake"], ["--lake", "lake"])]
    assert [(each.exit_code, each.stdout) for each in found] == [(1, ""), (0, "cancelled order-42\n"), (1, "")]
    assert far.get("order-42") is None


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["--delay", "2d"], "deferred"),
        (["--delay", "20h"], "pending"),
        (["--delay", "20h", "--horizon", "2h"], "deferred"),
    ],
)
def test_message_in_the_lake_is_moved_within_it_or_into_redis(invoke: Invoke, far: Queue, words: list[str], state: str):
    result = invoke("reschedule", "emails", "order-42", "--lake", "lake", *words)
    info = far.get("order-42")
    assert info is not None
    assert info.due_at is not None
    assert (info.state, f" ({info.due_at:%Y-%m-%d}" in result.stdout) == (state, True)


@pytest.mark.parametrize("every", [[], ["--every", "1m"]])
def test_hydrate_loads_the_queues_after_one_that_the_server_refuses(
    start: Start, server: RedisServer, tmp_path: Path, every: list[str]
):
    lake = tmp_path / "lake"
    for name in ("first", "refused", "then"):
        with Queue(name, url=server.url, horizon=2 * HOUR, lake=lake) as queue:
            queue.send(name, delay=YEAR)
    with server.client() as client:
        rights = {"categories": ["+@all"], "keys": ["delayq:{first}*", "delayq:{then}*"]}
        client.acl_setuser("loader", enabled=True, nopass=True, **rights)
    url = server.url.replace("unix://", "unix://loader:any@")
    process = start("lake", "hydrate", "--lake", "lake", "--horizon", "366d", *every, "--url", url)
    lines = followed(process)
    with Queue("then", url=server.url) as queue:
        assert eventually(lambda: queue.stats().pending == 1)
    assert eventually(lambda: any("grant this user" in line for line in lines))
    if every:
        process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == (0 if every else 2)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["cancel", "emails", "order-42", "--lake", "laek"], "the lake 'laek' does not exist: give the `lake`"),
        (
            ["reschedule", "emails", "order-42", "--delay", "1h", "--horizon", "2h"],
            "--horizon needs --lake",
        ),
    ],
)
def test_lake_that_is_mistyped_or_missing_is_bad_input(invoke: Invoke, far: Queue, words: list[str], why: str):
    result = invoke(*words)
    assert (result.exit_code, why in result.stderr) == (2, True)
    info = far.get("order-42")
    assert info is not None
    assert info.state == "deferred"


@pytest.mark.usefixtures("far")
def test_queue_without_messages_in_the_lake_gets_a_note(invoke: Invoke):
    result = invoke("cancel", "emials", "order-42", "--lake", "lake")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (
        1,
        "the lake lake holds nothing of queue emials; it has emails",
    )


def test_hydrate_moves_messages_due_soon_into_redis_once(invoke: Invoke, far: Queue):
    words = ["lake", "hydrate", "--lake", "lake", "--horizon"]
    assert invoke(*words, "2h").stdout == "0 messages loaded from 0 files\n"
    assert invoke(*words, "366d").stdout == "1 message loaded from 1 file\n"
    again = json.loads(invoke(*words, "366d", "--json").stdout)
    assert (again["files"], again["sent"]) == ([], 0)
    assert far.stats().pending == 1


def test_hydrate_with_every_loads_new_messages_and_continues_after_errors(
    start: Start, start_server: StartServer, tmp_path: Path
):
    server = start_server()
    with Queue("emails", url=server.url, horizon=2 * HOUR, lake=tmp_path / "lake") as queue:
        queue.send("first", delay=YEAR)
        (file,) = files(tmp_path / "lake")
        whole = file.read_bytes()
        file.write_bytes(b"damaged")
        server.stop()
        words = ["--lake", "lake", "--horizon", "366d", "--every", "50ms", "--url", server.url]
        process = start("lake", "hydrate", *words)
        lines = followed(process)
        assert eventually(lambda: any("redis unavailable" in line for line in lines))
        server.start()
        assert eventually(lambda: any("lake partly loaded" in line for line in lines))
        file.write_bytes(whole)
        assert eventually(lambda: queue.stats().pending == 1)
        queue.send("second", delay=YEAR)
        assert eventually(lambda: queue.stats().pending == 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert process.stdout is not None
    assert process.stdout.read() == 2 * "1 message loaded from 1 file\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--horizon", "1h", "--every", "1h"], "--every 1h must be shorter than --horizon 1h"),
        (["--until", "2099-01-01T00:00Z", "--every", "1h"], "--every needs --horizon"),
        ([], "give either --horizon or --until"),
    ],
)
def test_hydrate_refuses_conflicting_times(invoke: Invoke, words: list[str], why: str):
    result = invoke("lake", "hydrate", "--lake", "lake", *words)
    assert (result.exit_code, why in result.stderr) == (2, True)
