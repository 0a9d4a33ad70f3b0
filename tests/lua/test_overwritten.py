"""A key that another program has overwritten: the scripts that move messages fail before they have moved any."""

from __future__ import annotations

import pytest

from delayq.errors import ServerError
from tests.harness.lua.every import CALLS, state_for

GOES_TO = {
    "acquire_slot": "pending",
    "release_slot": "ready",
    "pending_to_ready": "ready",
    "ready_to_unack": "unack",
    "unack_to_retry": "retry",
    "ack_then": "pending",
    "nack": "retry",
    "release": "ready",
    "reject": "dead",
    "purge": "garbage",
    "remove_if_unchanged": "garbage",
    "restore": "retry",
}


@pytest.mark.parametrize(("script", "target"), GOES_TO.items(), ids=GOES_TO)
def test_message_stays_where_it_is_when_the_place_it_goes_to_is_none(queue, script, target):
    queue.given(**{name: held for name, held in state_for(script).items() if name != target})
    queue.redis.set(getattr(queue.keys, target), "not a sorted set")
    before = {key: queue.redis.dump(key) for key in queue.redis.scan_iter()}
    with pytest.raises(ServerError, match="WRONGTYPE"):
        queue.run(CALLS[script](queue.scripts))
    assert {key: queue.redis.dump(key) for key in queue.redis.scan_iter()} == before


TOUCHES = {
    "acquire_slot": "pending rate",
    "release": "ready rate",
    "ack_then": "pending garbage stats ready unack retry dead attempts errors reasons cancelled",
    "enqueue_occurrence": "schedules armed pending ready garbage attempts errors stats",
    "remove_if_unchanged": "dead garbage attempts errors reasons stats",
    "edit": "dead pending attempts reasons stats",
    "replace": "pending garbage stats ready unack retry dead attempts errors reasons cancelled",
    "restore": "pending garbage stats ready unack retry dead attempts errors reasons",
    "send_unique": "pending garbage stats ready unack retry dead",
}
PAIRS = [(script, key) for script, keys in TOUCHES.items() for key in keys.split()]


def test_nothing_is_done_in_part_when_a_key_was_overwritten(queue, subtests):
    for script, key in PAIRS:
        queue.clear()
        with subtests.test(script=script, key=key):
            queue.given(**{name: held for name, held in state_for(script).items() if name != key})
            queue.redis.set(getattr(queue.keys, key), "nothing of delayq")
            before = {name: queue.redis.dump(name) for name in queue.redis.scan_iter()}
            with pytest.raises(ServerError, match="WRONGTYPE"):
                queue.run(CALLS[script](queue.scripts))
            assert {name: queue.redis.dump(name) for name in queue.redis.scan_iter()} == before
