"""How long a trip waits for a node, and when calls to one in trouble are repeated."""

from __future__ import annotations

import pytest

from delayq.errors import ServerUnreachable
from delayq.protocol.command import Command, identity
from delayq.protocol.late_reply import Unanswered
from delayq.transport import node_troubles
from delayq.transport.cluster_calls import LateCalls, SentCommands
from delayq.transport.node_troubles import LEAST_PATIENCE, MOST_PATIENCE, NEW_PATIENCE, NodeTroubles


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1000.0]
    monkeypatch.setattr("delayq.transport.node_troubles.time.monotonic", lambda: time[0])
    return time


def test_patience_follows_the_replies_of_a_node_within_bounds() -> None:
    troubles = NodeTroubles()
    assert troubles.patience("a") == NEW_PATIENCE
    troubles.answered("a", 0.001)
    assert troubles.patience("a") == LEAST_PATIENCE
    troubles.answered("a", 0.05)
    assert troubles.patience("a") == pytest.approx(0.2)
    troubles.answered("a", 0.15)
    assert troubles.patience("a") == MOST_PATIENCE
    troubles.answered("a", 0.4)
    assert troubles.patience("a") == pytest.approx(0.6)  # a slow node must be heard in time
    troubles.answered("a", 5.0)
    assert troubles.patience("a") == NEW_PATIENCE
    for _ in range(400):
        troubles.answered("a", 0.001)
    assert troubles.patience("a") == LEAST_PATIENCE


def test_trouble_is_watched_by_one_and_only_while_calls_ask_for_its_node(now: list[float]) -> None:
    troubles = NodeTroubles()
    trouble = troubles.begin("a", ConnectionError("refused"))
    assert trouble is not None
    assert troubles.begin("a", ConnectionError("again")) is None
    assert troubles.of("b") is None
    now[0] += node_troubles.WANTED_SECONDS - 1
    assert troubles.of("a") is trouble
    now[0] += node_troubles.WANTED_SECONDS - 1
    assert troubles.is_wanted(trouble)
    now[0] += 2
    assert not troubles.is_wanted(trouble)
    troubles.end(trouble)
    assert troubles.of("a") is None


def test_trouble_lasts_once_calls_have_been_repeated_long_enough(now: list[float]) -> None:
    troubles = NodeTroubles()
    short, long = troubles.begin("a", OSError()), troubles.begin("b", OSError(), waited=5.0)
    assert short is not None
    assert long is not None
    assert (short.is_lasting, long.is_lasting) == (False, True)
    now[0] += node_troubles.LASTING_SECONDS + 0.1
    assert short.is_lasting


def test_forked_child_does_not_wait_for_its_parents_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    troubles = NodeTroubles()
    troubles.begin("a", OSError())
    monkeypatch.setattr("delayq.transport.node_troubles.os.getpid", lambda: -1)
    assert troubles.of("a") is None


def test_closing_wakes_all_watchers() -> None:
    troubles, woken = NodeTroubles(), list[str]()
    trouble = troubles.begin("a", OSError())
    assert trouble is not None
    trouble.nudge = lambda: woken.append("a")
    troubles.clear()
    assert (woken, troubles.is_wanted(trouble)) == (["a"], False)


def test_late_reply_that_is_lost_is_answered_with_an_error() -> None:
    """Otherwise its caller would wait for it for ever."""
    sent = SentCommands(Command("k", ("GET", "k"), identity), False)
    unanswered = Unanswered("a")
    LateCalls([sent], [unanswered]).answer()
    assert not unanswered.is_open
    assert isinstance(unanswered.reply, ServerUnreachable)
