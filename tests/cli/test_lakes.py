"""cancel, reschedule, show and why, of messages that rest in a lake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import Queue
from tests.cli.conftest import Invoke
from tests.harness.servers import RedisServer

YEAR = 365 * 86_400
HOUR = 3600


@pytest.fixture
def far(server: RedisServer, tmp_path: Path) -> Iterator[Queue]:
    """The queue emails, of which the message order-42 rests in the lake, for a year."""
    with Queue("emails", url=server.url, horizon=2 * HOUR, lake=tmp_path / "lake") as queue:
        queue.send({"to": "a@example.org"}, id="order-42", delay=YEAR)
        yield queue


@pytest.mark.usefixtures("far")
def test_message_that_rests_is_shown_with_its_lake_alone(invoke: Invoke):
    shown = json.loads(invoke("show", "emails", "order-42", "--lake", "lake", "--json").stdout)
    assert (shown["state"], shown["payload"]) == ("deferred", {"to": "a@example.org"})
    assert "rests in" in invoke("why", "emails", "order-42", "--lake", "lake").stdout
    without = invoke("show", "emails", "order-42")
    assert (without.exit_code, "has no message 'order-42'" in without.stderr) == (1, True)


def test_message_that_rests_is_cancelled_once(invoke: Invoke, far: Queue):
    told = [invoke("cancel", "emails", "order-42", *words) for words in ([], ["--lake", "lake"], ["--lake", "lake"])]
    assert [(each.exit_code, each.stdout) for each in told] == [(1, ""), (0, "cancelled order-42\n"), (1, "")]
    assert far.get("order-42") is None


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["--delay", "2d"], "deferred"),
        (["--delay", "20h"], "pending"),
        (["--delay", "20h", "--horizon", "2h"], "deferred"),
    ],
)
def test_message_that_rests_is_moved_in_its_lake_or_into_redis(
    invoke: Invoke, far: Queue, words: list[str], state: str
):
    told = invoke("reschedule", "emails", "order-42", "--lake", "lake", *words)
    info = far.get("order-42")
    assert info is not None
    assert info.due_at is not None
    assert (info.state, f" ({info.due_at:%Y-%m-%d}" in told.stdout) == (state, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["cancel", "emails", "order-42", "--lake", "laek"], "the lake 'laek' is not there: give the folder"),
        (
            ["reschedule", "emails", "order-42", "--delay", "1h", "--horizon", "2h"],
            "without --lake, to which it belongs",
        ),
    ],
)
def test_lake_that_is_mistyped_or_missing_is_bad_input(invoke: Invoke, far: Queue, words: list[str], why: str):
    told = invoke(*words)
    assert (told.exit_code, why in told.stderr) == (2, True)
    info = far.get("order-42")
    assert info is not None
    assert info.state == "deferred"


@pytest.mark.usefixtures("far")
def test_queue_of_which_nothing_rests_is_told(invoke: Invoke):
    told = invoke("cancel", "emials", "order-42", "--lake", "lake")
    assert (told.exit_code, told.stderr.splitlines()[0]) == (1, "nothing of emials is in lake, which has emails")
