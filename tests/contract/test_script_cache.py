"""A server that knows only some of the scripts: the calls of a new client run in order, in both APIs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import redis

from delayq import Message, Outgoing, Queue
from delayq.errors import ServerUnreachable
from delayq.operations import claim as claim_module
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute
from delayq.protocol.script import script
from tests.contract.conftest import Drain, Make, Now, intercept
from tests.harness.awaiting import Awaited


def warm(queue: Any) -> None:
    """Let a client learn that its server knows all scripts."""
    for number in range(3):
        queue.send(number)
        queue.ack(queue.receive())


def claim(queue: Any, **options: Any) -> list[Any]:
    """Claim as a consumer does; return the payloads."""
    batch: claim_module.Batch = queue.execute(claim_module.claim, partial(Message, queue), 10, 60_000, **options)
    return [message.payload for message in batch.messages]


def connection_of(queue: Any) -> Any:
    return queue.target._executor if isinstance(queue, Awaited) else queue._executor


def before_texts_are_sent(queue: Any, patch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Call `do` between a round trip with refused calls and the next, which sends the texts of their scripts."""
    connection = connection_of(queue)
    send = connection._send

    def delayed(*args: Any, whole: bool = False, **options: Any) -> Any:
        if whole:
            do()
        return send(*args, whole=whole, **options)

    patch.setattr(connection, "_send", delayed)


def forget_all_but(client: Any, *names: str) -> None:
    """Let the server forget scripts, as Redis 7.4 and newer do with the least recently used ones."""
    client.script_flush()
    for name in names:
        client.script_load(script(name).text)


def lose() -> None:
    raise redis.ConnectionError("Connection closed by server.")


@pytest.fixture
def claims_alone(client: Any) -> None:
    """Let the server know the claim script, because another client has just used it, but not the promote script."""
    forget_all_but(client, "ready_to_unack")


@pytest.mark.usefixtures("claims_alone")
def test_due_message_is_promoted_before_the_claim(make: Make):
    queue = make()
    queue.send("due")
    assert [message.payload for message in queue.receive()] == ["due"]


@pytest.mark.usefixtures("claims_alone")
def test_drain_ends_when_nothing_is_due(make: Make, drain: Drain):
    queue = make()
    queue.send_many(Outgoing(number) for number in range(3))
    assert drain(queue, lambda _: None) == 3
    assert queue.stats().inside == 0


def test_due_message_is_handed_out_after_the_server_forgot_the_promote_script(make: Make, client: Any):
    queue = make()
    warm(queue)
    queue.send("due")
    forget_all_but(client, "ready_to_unack")
    assert [message.payload for message in queue.receive()] == ["due"]


def test_lost_message_is_handed_out_after_the_server_forgot_the_recovery_script(make: Make, client: Any, now: Now):
    queue = make(shards=1)
    assert claim(queue, recovering=True) == []
    queue.send("lost")
    assert len(queue.receive(lease=1)) == 1
    now.later(2)
    forget_all_but(client, "pending_to_ready", "ready_to_unack")
    assert claim(queue, recovering=True) == ["lost"]


def test_message_replaced_before_a_repeated_claim_is_handed_out_as_replaced(
    make: Make, client: Any, now: Now, monkeypatch: pytest.MonkeyPatch
):
    queue, other = make(shards=1), Queue("jobs", redis=client, clock=now)
    warm(queue)
    queue.send("old", id="a")
    forget_all_but(client, "ready_to_unack")
    trips: list[int] = []

    def replace(calls: Sequence[Command[Any]]) -> None:
        trips.append(len(calls))
        if trips == [3, 1]:
            other.send("new", id="a", on_conflict="replace")
            assert other._executor.execute(execute(other._context.shards[0].pending_to_ready())) == 1

    intercept(queue, monkeypatch, before=replace)
    assert claim(queue, expected=["a"]) == ["new"]
    assert trips == [3, 1, 1]


def test_claim_that_a_limit_leaves_empty_is_not_repeated(make: Make, monkeypatch: pytest.MonkeyPatch):
    queue = make(shards=1, concurrency=1)
    queue.send_many(Outgoing(number) for number in range(2))
    assert len(queue.receive()) == 1
    queue.send("held back")
    trips: list[int] = []
    intercept(queue, monkeypatch, after=lambda calls: trips.append(len(calls)))
    assert queue.receive() == []
    assert len(trips) == 1


TEXTS, DIGESTS = ["EVAL", "EVAL"], ["EVALSHA", "EVALSHA"]


class Trip:
    """A round trip of two scripts, and the commands with which they were sent."""

    def __init__(self, queue: Any, patch: pytest.MonkeyPatch) -> None:
        self.queue = queue
        self._said: list[Any] = []
        real = Command.words

        def words(call: Command[Any], whole: bool = False) -> Any:
            said = real(call, whole)
            self._said.append(said[0])
            return said

        patch.setattr(Command, "words", words)

    def make(self) -> list[Any]:
        self._said = []
        scripts = self.queue._context.shards[0]
        self.queue.execute(lambda _: steps([scripts.pending_to_ready(), scripts.stats()]))
        return self._said


def steps(calls: list[Command[Any]]) -> Operation[list[Any]]:
    return (yield calls)


@pytest.fixture
def trip(make: Make, monkeypatch: pytest.MonkeyPatch) -> Trip:
    """A round trip that was made before."""
    queue = make(shards=1)
    queue.send("x")
    trip = Trip(queue, monkeypatch)
    assert (trip.make(), trip.make()) == (TEXTS, DIGESTS)
    return trip


def test_script_text_is_sent_again_after_a_script_was_refused(trip: Trip, client: Any):
    client.script_flush()
    trip.queue.cancel("nothing")  # alone in its round trip, it is refused
    assert (trip.make(), trip.make()) == (TEXTS, DIGESTS)


def test_script_text_is_sent_again_after_a_lost_connection(trip: Trip, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(connection_of(trip.queue), "_send", lambda *_, **__: lose())
        with pytest.raises(ServerUnreachable):
            trip.make()
    assert (trip.make(), trip.make()) == (TEXTS, DIGESTS)


def test_script_text_is_sent_again_by_a_closed_queue(trip: Trip):
    trip.queue.close()
    assert (trip.make(), trip.make()) == (TEXTS, DIGESTS)


def test_message_replaced_while_script_texts_are_sent_is_handed_out_as_replaced(
    make: Make, client: Any, now: Now, monkeypatch: pytest.MonkeyPatch
):
    queue, other = make(shards=1), Queue("jobs", redis=client, clock=now)
    warm(queue)
    queue.send("old", id="a")
    client.script_flush()
    before_texts_are_sent(queue, monkeypatch, lambda: other.send("new", id="a", on_conflict="replace"))
    assert claim(queue, expected=["a"]) == ["new"]


def test_messages_claimed_before_the_script_texts_were_lost_reach_the_receiver(
    make: Make, client: Any, now: Now, monkeypatch: pytest.MonkeyPatch
):
    queue, other = make(shards=1), Queue("jobs", redis=client, clock=now)
    warm(queue)
    other.send_many(Outgoing(number) for number in range(2))
    (first,) = other.receive(1)  # the other one is promoted
    forget_all_but(client, "ready_to_unack")
    before_texts_are_sent(queue, monkeypatch, lose)
    assert [message.payload for message in queue.receive()] == [1 - first.payload]


def test_call_fails_if_its_script_text_is_lost(make: Make, client: Any, monkeypatch: pytest.MonkeyPatch):
    queue = make(shards=1)
    warm(queue)
    client.script_flush()
    before_texts_are_sent(queue, monkeypatch, lose)
    with pytest.raises(ServerUnreachable):
        queue.receive()
    monkeypatch.undo()
    queue.send("after")
    assert [message.payload for message in queue.receive()] == ["after"]
