"""The table of actions is complete: each row has its operation, its words, its command and its HTTP operations."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Iterator
from typing import get_args

import pytest
from delayq.cli import main
from delayq.cli.candidates import STATES_FOR

from delayq import Outgoing, Queue
from delayq.dead_letters import DeadLetters
from delayq.model.actions import ACTIONS, UNCHANGED, Action, How, Outcome
from delayq.model.placement import PURGEABLE, STATES
from delayq.operations.bulk import actions
from delayq.operations.bulk.actions import PREPARE
from delayq.web.api.table import OPERATIONS
from tests.cli.test_help import commands
from tests.harness.servers import RedisServer


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url) as queue:
        yield queue


OF_IDS = [each for each in ACTIONS.values() if each.takes_ids]


def test_each_action_on_named_messages_has_an_operation():
    assert set(PREPARE) == {each.name for each in OF_IDS}


def test_outcomes_are_those_of_the_table():
    assert set(get_args(Outcome)) == {each.done for each in OF_IDS} | set(UNCHANGED)


@pytest.mark.parametrize("action", ACTIONS.values(), ids=lambda each: each.name)
def test_each_action_is_a_method_a_command_and_operations_of_the_api(action: Action):
    method = "cancel" if action.name == "stop" else action.name  # to stop is to cancel with an option
    assert hasattr(Queue, method) or hasattr(DeadLetters, method)
    found = {name: command for name, command in commands(main) if name in {method, f"dead {method}"}}
    assert found
    if method != action.name:
        assert "running" in inspect.signature(Queue.cancel).parameters
        assert "running" in {parameter.name for parameter in found[method].params}
    ours = [each for each in OPERATIONS if each.action == action.name and each.acts and "/queues/" in each.path]
    paths = {each.path.rpartition("/")[2] for each in ours}
    assert paths == ({action.name, f"{action.name}-matching"} if action.takes_ids else {action.name})
    assert action.about
    assert bool(action.about_matching) == action.takes_ids


@pytest.mark.parametrize("action", OF_IDS, ids=lambda each: each.name)
def test_each_action_describes_each_outcome_that_it_reports(queue: Queue, action: Action):
    """Every message is in another state; the action changes those of its own states, and names what the others are."""
    queue.send("x", id="dead", max_retries=0)
    queue.receive()[0].reject()
    queue.send("x", id="unack")
    queue.receive()
    queue.send("x", id="retry")
    queue.receive()[0].nack(60)
    queue.send("x", id="ready")
    queue.receive()[0].release()
    queue.send("x", id="pending", delay=60)
    queue.send_group([Outgoing("x", delay=60)], Outgoing("x", id="held"))
    now = queue.stats().at
    ids = [state for state in STATES if state != "garbage"]
    outcomes = queue.execute(actions.each, PREPARE[action.name](How(due=now), now).act, [*ids, "none"])
    # `receive` has the running one, which nobody can stop
    changed = set(PURGEABLE if action.name in {"cancel", "stop"} else action.states)
    for state in ids:
        done = action.changes(outcomes[state])
        assert done == (state in changed), (state, outcomes[state])
        assert action.became(outcomes[state], state)
        assert done or action.refusal(outcomes[state])


def test_shift_of_a_held_message_counts_from_now(queue: Queue):
    queue.send_group([Outgoing("member", delay=100)], Outgoing("then", id="then"))
    now = queue.stats().at
    assert queue.execute(actions.each, PREPARE["reschedule"](How(shift=50), now).act, ["then"]) == {
        "then": "rescheduled"
    }
    then = queue.get("then")
    assert then is not None
    assert then.due_at == now + dt.timedelta(seconds=50)


def test_settings_of_a_reschedule_shift_and_spread_due_times(queue: Queue):
    queue.send_many([Outgoing(n, id=f"m{n}", delay=100 + n) for n in range(20)])
    now, before = queue.stats().at, {each.id: each.due_at for each in queue.peek(limit=20)}
    ids = [*before]
    queue.execute(actions.each, PREPARE["reschedule"](How(shift=-50), now).act, ids)
    shifts = {(before[each.id] - each.due_at).total_seconds() for each in queue.peek(limit=20) if each.due_at}  # type: ignore[operator]  # both wait
    assert shifts == {50.0}
    queue.execute(actions.each, PREPARE["reschedule"](How(due=10, spread=60), now).act, ids)
    after = [(each.due_at - now).total_seconds() for each in queue.peek(limit=20) if each.due_at]
    assert min(after) >= 10
    assert max(after) <= 71
    assert len(set(after)) > 10
    assert STATES_FOR["reschedule"] == ACTIONS["reschedule"].states
