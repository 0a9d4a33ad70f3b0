"""A queue notes that it has had a large envelope, whichever script stored it; claims say so."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from delayq.protocol.replies import LARGE_BYTES
from tests.harness.lua.every import CALLS, STATE
from tests.harness.lua.raw import LEASE, NOW, RawQueue


def run_with(queue: RawQueue, name: str, envelope: bytes) -> bool:
    """Run a script on the sample state with this envelope in its arguments; return whether it stored it."""
    queue.clear()
    queue.given(**STATE)
    call = CALLS[name](queue.scripts)
    args = tuple(envelope if each == b"{}" else each for each in call.args)
    queue.run(msgspec.structs.replace(call, args=args))
    kept: Any = queue.redis
    keys = kept.keys(f"{queue.keys.message_prefix}*")
    return any(kept.strlen(key) > LARGE_BYTES for key in keys)


def test_each_script_that_stores_a_large_envelope_says_so(queue: RawQueue) -> None:
    large = b"x" * (LARGE_BYTES + 1)
    storing = {name for name in CALLS if run_with(queue, name, large)}
    assert storing >= {"send", "send_unique", "replace", "restore", "edit", "ack_then", "enqueue_occurrence"}
    for name in storing:
        run_with(queue, name, large)
        assert int(queue.state()["stats"]["large"]) >= 1, name
        run_with(queue, name, b"x" * LARGE_BYTES)
        assert "large" not in queue.state()["stats"], name  # not even zero: of messages sent before, nothing is known


@pytest.mark.parametrize(
    ("sizes", "has_large"),
    [([1], False), ([LARGE_BYTES], False), ([LARGE_BYTES + 1], True), ([1, LARGE_BYTES + 1, 1], True)],
)
def test_claim_says_whether_the_queue_has_ever_had_a_large_envelope(
    queue: RawQueue, sizes: list[int], has_large: bool
) -> None:
    for number, size in enumerate(sizes):
        queue.send([(f"a{number}", NOW - 1, b"x" * size)])
    for repeated in (1, 1, 2):  # a repeated claim gets the same answer
        queue.pending_to_ready()
        assert queue.ready_to_unack(1, LEASE, "me", f"{repeated:032}").has_large is has_large or repeated > len(sizes)
    queue.send([("last", NOW - 1, b"x")])
    queue.pending_to_ready()
    assert queue.ready_to_unack(9, LEASE).has_large is has_large


def test_kept_reply_of_another_version_counts_as_one_with_large_envelopes(queue: RawQueue) -> None:
    queue.send([("a", NOW - 1, b"x")])
    queue.pending_to_ready()
    name = f"{1:032}"
    claimed = queue.ready_to_unack(1, LEASE, "me", name)
    kept: Any = queue.redis
    key = queue.keys.claim("me", name[:16])
    whole = json.loads(kept.get(key)[32:])
    kept.set(key, name + json.dumps(whole[:4]))
    again = queue.ready_to_unack(1, LEASE, "me", name)
    assert (claimed.has_large, again.has_large, again.ids) == (False, True, ["a"])


def test_nothing_is_known_of_a_queue_whose_first_messages_came_from_another_version(queue: RawQueue) -> None:
    queue.given(**STATE)
    queue.send([("a", NOW - 1, b"x")])
    queue.pending_to_ready()
    assert queue.ready_to_unack(1, LEASE).has_large
