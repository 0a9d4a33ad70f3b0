"""What becomes of an outcome that the server did not accept: it is ready again, waits or is given up."""

from __future__ import annotations

import math
from typing import Any

import pytest

from delayq.errors import (
    DelayqError,
    DuplicateMessage,
    LoginRefused,
    ServerError,
    ServerUnreachable,
    UnknownGroup,
)
from delayq.model import outcome as oc
from delayq.runtime import engine, topic_engine
from delayq.runtime.base_engine import BaseEngine
from delayq.runtime.refused_outcomes import MOST_LOST
from delayq.runtime.unsettled_outcomes import UnsettledOutcomes

LARGE = oc.AckAndSend(["large"])
SMALL = oc.AckAndSend(["small"])


def unsettled(is_burst: bool = False) -> UnsettledOutcomes[str]:
    return UnsettledOutcomes(lambda subject: subject[0], lambda _, outcome: outcome is LARGE, is_burst, queue="jobs")


def test_large_outcome_waits_for_a_round_trip_of_its_own():
    outcomes = unsettled()
    outcomes.add([("a", oc.DONE), ("b", LARGE), ("c", SMALL)])
    assert (outcomes.ready, outcomes.large) == ([("a", oc.DONE), ("c", SMALL)], [("b", LARGE)])
    assert len(outcomes) == 3
    assert outcomes.are_due


@pytest.mark.parametrize(
    "error", [ServerUnreachable("away"), UnknownGroup("lost")], ids=lambda error: type(error).__name__
)
def test_outcome_is_ready_again_and_the_turn_fails_if_nothing_can_be_settled(error: DelayqError):
    outcomes = unsettled()
    assert outcomes.keep("a", oc.DONE, error, is_away=False)
    assert outcomes.ready == [("a", oc.DONE)]
    with pytest.raises(type(error)):
        outcomes.raise_trouble()
    outcomes.raise_trouble()  # once


def test_outcome_for_an_unavailable_shard_waits_while_the_others_are_served():
    outcomes = unsettled()
    assert outcomes.keep("a", oc.DONE, ServerUnreachable("away"), is_away=True)
    outcomes.raise_trouble()
    assert (len(outcomes), outcomes.are_due, outcomes.ids()) == (1, False, frozenset([id("a")]))
    assert 0 < outcomes.left() < math.inf


def test_refused_outcome_waits_alone():
    outcomes = unsettled()
    assert outcomes.keep("a", oc.DONE, ServerError("no memory"), is_away=False)
    outcomes.raise_trouble()
    assert (len(outcomes), outcomes.are_due) == (1, False)


def test_outcome_that_caused_its_error_fails():
    outcomes = unsettled()
    assert outcomes.keep("a", SMALL, DuplicateMessage("exists"), is_away=False)
    ((_, outcome),) = outcomes.ready
    assert isinstance(outcome, oc.Failed)
    outcomes.raise_trouble()


def test_missing_right_ends_a_burst():
    outcomes = unsettled(is_burst=True)
    outcomes.keep("a", oc.DONE, LoginRefused("no right"), is_away=False)
    with pytest.raises(LoginRefused):
        outcomes.raise_trouble()


def test_outcome_that_keeps_breaking_its_connection_fails_and_is_given_up_if_that_is_refused_too():
    outcomes, error = unsettled(), ServerUnreachable("broken")
    for _ in range(MOST_LOST):
        assert outcomes.keep("a", LARGE, error, is_away=False, is_alone=True)
    ((_, failed),) = outcomes.ready
    assert isinstance(failed, oc.Failed)
    kept = [outcomes.keep("a", failed, error, is_away=False, is_alone=True) for _ in range(MOST_LOST)]
    assert kept == [True] * (MOST_LOST - 1) + [False]


def test_none_waits_at_the_end():
    outcomes = unsettled()
    outcomes.keep("a", oc.DONE, ServerUnreachable("away"), is_away=True)
    outcomes.keep("b", oc.DONE, ServerError("no memory"), is_away=False)
    outcomes.keep("c", LARGE, ServerError("too large"), is_away=False, is_alone=True)
    outcomes.end()
    assert sorted(outcomes.ready) == [("a", oc.DONE), ("b", oc.DONE)]
    assert outcomes.large == [("c", LARGE)]
    outcomes.keep("a", oc.DONE, ServerUnreachable("away"), is_away=True)
    outcomes.keep("c", LARGE, ServerUnreachable("broken"), is_away=False, is_alone=True)
    assert outcomes.ready[-2:] == [("a", oc.DONE), ("c", oc.INTERRUPTED)]


def test_interrupted_run_sends_no_messages():
    outcomes = unsettled()
    outcomes.add([("a", SMALL), ("b", oc.DONE)])
    outcomes.interrupt(["c"])
    assert outcomes.ready == [("a", oc.INTERRUPTED), ("b", oc.DONE), ("c", oc.INTERRUPTED)]


@pytest.mark.parametrize("kind", [engine.ConsumerEngine, topic_engine.TopicEngine], ids=lambda kind: kind.__name__)
def test_engines_take_over_every_hook_of_a_run(kind: type[BaseEngine[Any]]):
    hooks = [name for name, value in vars(BaseEngine).items() if raises_at_once(value)]
    assert len(hooks) > 5
    assert [name for name in hooks if name not in vars(kind)] == []


def raises_at_once(value: object) -> bool:
    function = value.fget if isinstance(value, property) else value
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    return names == ("NotImplementedError",)
