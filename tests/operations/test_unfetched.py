"""A claim that could not be fetched is renewed, comes first in the next claim, and is handed back at stop."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from delayq import Message, Outgoing, Queue
from delayq.errors import ServerUnreachable
from delayq.model.delivery import receipt_of
from delayq.model.lease_clock import lease_now
from delayq.operations import unfetched
from delayq.operations.claim import claim, claim_all
from delayq.operations.queue_context import QueueContext, Settings
from delayq.protocol.replies import Claimed
from delayq.transport import trampoline
from tests.harness.calls import run_one
from tests.harness.servers import RedisServer


@pytest.fixture
def queue(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """A queue with three messages, claimed by a consumer that lost its connection before it could fetch them."""
    with Queue("jobs", url=redis_server.url, lease=60) as queue:
        for name in ("a", "b", "c"):
            queue.send(name, id=name)
        run = queue._executor.run

        def cut(calls: Any, repeat: bool = True) -> Any:
            if any(call.args[0] == "MGET" for call in calls):
                raise ServerUnreachable("cut")
            return run(calls, repeat)

        with monkeypatch.context() as patch:
            patch.setattr(queue._executor, "run", cut)
            with pytest.raises(ServerUnreachable, match="cut"):
                queue.execute(claim, partial(Message, queue), 10, 60_000)
        assert queue.stats().unack == 3
        yield queue


def test_next_claim_fetches_unfetched_messages_and_uses_no_attempt(queue: Queue):
    batch = queue.execute(claim, partial(Message, queue), 2, 60_000)
    assert [(each.id, each.attempt) for each in batch.messages] == [("a", 1), ("b", 1)]
    batch = queue.execute(claim, partial(Message, queue), 2, 60_000)
    assert [(each.id, each.attempt) for each in batch.messages] == [("c", 1)]
    assert queue.stats().delivered == 3


def test_unfetched_messages_are_ours_after_an_outage_of_many_leases_unless_others_have_them(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    (claimed,) = queue._context.claims.unfetched
    monkeypatch.setattr(unfetched, "lease_now", lambda: lease_now() + 20 * 60)
    queue.execute(run_one, claimed.scripts.release("a", receipt_of(None, claimed.found.micros), 0))
    queue.execute(unfetched.renew, True)  # as after each outage
    batch = queue.execute(claim, partial(Message, queue), 10, 60_000)
    assert [(each.id, each.attempt) for each in batch.messages] == [("b", 1), ("c", 1), ("a", 1)]
    assert {each.retries_used for each in batch.messages} == {0}


def test_several_threads_share_the_unfetched_messages():
    """Each is taken by one of them, whatever the order of their steps."""
    context, names = QueueContext("q", "p", 1, Settings()), [str(number) for number in range(300)]
    scripts, before = context.shards[0], sys.getswitchinterval()

    def take() -> list[str]:
        taken = list[str]()
        while claimed := unfetched.take(context, 1, {}):
            taken += claimed.found.ids
        return taken

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(30):
                found = [Claimed(0, 0, [name], [0], [None]) for name in names]
                context.claims.unfetched = [
                    unfetched.ClaimedUnfetched(scripts, each, 60_000, lease_now()) for each in found
                ]
                takers = [pool.submit(take) for _ in range(4)]
                assert sorted(each for taker in takers for each in taker.result()) == sorted(names)
    finally:
        sys.setswitchinterval(before)


def test_unfetched_messages_are_handed_back_and_use_no_retry(queue: Queue):
    queue.execute(unfetched.release)
    assert (queue.stats().ready, queue.stats().unack, queue.stats().released) == (3, 0, 3)
    assert [each.retries_used for each in queue.receive(10)] == [0, 0, 0]
    queue.execute(unfetched.release)
    assert queue.stats().unack == 3


def test_unfetched_messages_are_renewed_after_a_third_of_their_lease(queue: Queue):
    (claimed,) = queue._context.claims.unfetched
    before = queue.peek("unack")[0].lease_until
    queue.execute(unfetched.renew)
    assert queue.peek("unack")[0].lease_until == before
    claimed.asked -= 30
    queue.execute(unfetched.renew)
    after = queue.peek("unack")[0].lease_until
    assert before is not None
    assert after is not None
    assert after > before
    assert claimed.left > 50


def test_forked_child_leaves_unfetched_messages_to_its_parent(queue: Queue):
    (claimed,) = queue._context.claims.unfetched
    claimed.process -= 1
    assert queue.execute(claim, partial(Message, queue), 2, 60_000).messages == []
    queue.execute(unfetched.release)
    assert queue.stats().unack == 3


def test_messages_of_one_shard_are_renewed_while_another_delays_the_claim(redis_server: RedisServer):
    with Queue("wide", url=redis_server.url, lease=60, shards=2) as queue:
        queue.send_many([Outgoing(number) for number in range(20)])
        queue._context.claims.budget.note(1, 100, 0.0)  # small messages: a claim takes all
        run, ends = queue._executor.run, list[float]()

        def slow(calls: Any, repeat: bool = True) -> Any:
            if any(call.script is not None and call.script.name == "ready_to_unack" for call in calls):
                for (
                    each
                ) in queue._context.claims.fetching:  # those of the first shard, whose lease is two thirds over by now
                    each.asked -= 40
                    trampoline.run(unfetched.renew(queue._context), run)  # as the heartbeat does
                    ends.extend(message.held_until - time.monotonic() for message in each.messages)
            return run(calls, repeat)

        queue._executor.run = slow  # type: ignore[method-assign]
        assert len(queue.execute(claim, partial(Message, queue), 20, 60_000).messages) == 20
        assert ends
        assert min(ends) > 55
        assert queue._context.claims.fetching == []


def test_cancelled_receiver_claims_no_more(redis_server: RedisServer):
    with Queue("jobs", url=redis_server.url, lease=60) as queue:
        queue.send_many([Outgoing(n) for n in range(20)])
        limit = queue._context.claims.budget.count(60_000)
        assert limit < 20, "otherwise one claim gets all messages"
        batch = queue.execute(claim_all, partial(Message, queue), 20, 60_000, "", lambda: True)
        assert len(batch.messages) == queue.stats().unack == limit
        queue.execute(claim_all, partial(Message, queue), 20, 60_000, "")
        assert queue.stats().unack == 20
