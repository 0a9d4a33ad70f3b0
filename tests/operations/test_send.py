"""Sending, without a server: how messages become calls, and replies become results."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pytest

from delayq import Outgoing, SentMessage
from delayq.errors import (
    DelayqError,
    DuplicateMessage,
    InvalidInput,
    InvalidTime,
    NotReplicated,
    PayloadTooLarge,
    ServerNotReady,
    ServerUnreachable,
)
from delayq.model.placement import shard_of
from delayq.model.units import due_word
from delayq.operations.byte_budget import UP_BYTES, UP_CALL_BYTES
from delayq.operations.queue_context import QueueContext, Settings
from delayq.operations.send import CALLS_A_TRIP, MAX_SENT, send_many
from delayq.protocol.command import Command

DUE = 1_700_000_000_000


def context(shards: int = 1, **settings: Any) -> QueueContext:
    return QueueContext("q", "p", shards, Settings(**settings), lambda: DUE)


def name(call: Command[Any]) -> str:
    return call.script.name if call.script else str(call.args[0])


class Server:
    """Answers the calls of a send: every message is new, except for the ids that exist."""

    def __init__(self, shards: int = 1, existing: Sequence[str] = (), replicas: int = 0) -> None:
        self.shards, self.existing, self.replicas = shards, set(existing), replicas
        self.trips: list[list[Command[Any]]] = []

    def run(self, steps: Any) -> Any:
        try:
            calls = next(steps)
            while True:
                self.trips.append(calls)
                calls = steps.send([self.result(call) for call in calls])
        except StopIteration as stop:
            return stop.value

    def result(self, call: Command[Any]) -> Any:
        return call.read(self.answer(call))

    def answer(self, call: Command[Any]) -> Any:
        keys = int(call.args[0]) if call.script else 0
        words = call.args[1 + keys :]
        match name(call):
            case "open_queue":
                return [self.shards, 1, b"", []]
            case "send":
                return [-1 if message_id in self.existing else DUE for message_id in words[2::3]]
            case "replace":
                return [DUE, 0 if words[1] in self.existing else 1]
            case "get":
                return [[str(DUE + 5).encode(), *[None] * 6], None, None, None, 0, b"", None, None]
            case "HINCRBY" | "HSET":
                return 1
            case "fitting":
                return keys
            case "WAIT":
                return self.replicas
        raise AssertionError(name(call))

    def sent(self) -> list[tuple[str, int]]:
        """The calls that send: by name, with their number of messages."""
        calls = [call for trip in self.trips for call in trip if name(call) in ("send", "replace")]
        return [
            (name(call), (len(call.args) - 1 - int(call.args[0]) - 2) // 3 if name(call) == "send" else 1)
            for call in calls
        ]


def send(
    messages: Sequence[Outgoing], server: Server | None = None, queue: QueueContext | None = None, **options: Any
) -> list[SentMessage]:
    return (server or Server()).run(send_many(queue or context(), messages, **options))  # type: ignore[no-any-return]


def test_nothing_to_send_asks_nothing_of_the_server():
    server = Server()
    assert send([], server) == []
    assert server.trips == []


def test_results_are_in_the_order_of_the_messages():
    server = Server(existing=["b", "c"])
    messages = [
        Outgoing(1, id="a"),
        Outgoing(2, id="b"),
        Outgoing(3, id="c", on_conflict="replace"),
        Outgoing(4, id="d"),
    ]
    sents = send(messages, server)
    assert [(sent.id, sent.created) for sent in sents] == [("a", True), ("b", False), ("c", False), ("d", True)]


def test_existing_message_keeps_its_own_due_time():
    (sent,) = send([Outgoing(1, id="a", delay=99)], Server(existing=["a"]))
    assert sent.due_at == dt.datetime.fromtimestamp((DUE + 5) / 1000, dt.UTC)


def test_existing_random_id_is_our_own_message_sent_twice():
    server = Server()
    messages = [Outgoing(1)]
    server.answer = lambda call: [-1] if name(call) == "send" else Server.answer(server, call)  # type: ignore[method-assign]
    assert send(messages, server)[0].created is True


@pytest.mark.parametrize(("count", "calls"), [(1, [1]), (MAX_SENT, [MAX_SENT]), (MAX_SENT + 1, [MAX_SENT, 1])])
def test_call_holds_a_bounded_number_of_messages(count: int, calls: list[int]):
    server = Server()
    assert len(send([Outgoing(n) for n in range(count)], server)) == count
    assert server.sent() == [("send", size) for size in calls]


def test_call_holds_a_bounded_number_of_bytes():
    server = Server()
    send([Outgoing(b"x" * (UP_CALL_BYTES // 3 - 100)) for _ in range(7)], server)
    assert server.sent() == [("send", 3), ("send", 3), ("send", 1)]
    assert [len(trip) for trip in server.trips] == [1, 3]  # the first trip opens the queue


def test_trip_holds_a_bounded_number_of_bytes():
    server = Server()
    send([Outgoing(b"x" * (UP_BYTES // 3 - 100)) for _ in range(7)], server)
    assert server.sent() == [("send", 1)] * 7
    assert [len(trip) for trip in server.trips] == [1, 3, 3, 1]


def test_trip_holds_a_bounded_number_of_calls():
    server = Server()
    send([Outgoing(n) for n in range(MAX_SENT * (CALLS_A_TRIP + 1))], server)
    assert [len(trip) for trip in server.trips] == [1, CALLS_A_TRIP, 1]


def test_repeated_id_goes_into_two_calls():
    server = Server()
    send([Outgoing(1, id="a"), Outgoing(2, id="b"), Outgoing(3, id="a")], server)
    assert server.sent() == [("send", 2), ("send", 1)]


def test_replacement_comes_after_the_messages_sent_before_it():
    server = Server()
    send([Outgoing(1, id="a"), Outgoing(2, id="a", on_conflict="replace"), Outgoing(3, id="b")], server)
    assert server.sent() == [("send", 1), ("replace", 1), ("send", 1)]


def test_messages_go_to_their_shards():
    server, queue = Server(shards=3), context(shards=3)
    messages = [Outgoing(n, id=f"m{n}") for n in range(30)]
    assert [sent.id for sent in send(messages, server, queue)] == [message.id for message in messages]
    calls = [call for trip in server.trips for call in trip if name(call) == "send"]
    assert {call.key for call in calls} == {queue.shard(f"m{n}").keys.pending for n in range(30)}
    assert len(calls) == 3


def test_each_trip_waits_for_its_replicas():
    server = Server(replicas=2)
    send([Outgoing(n) for n in range(MAX_SENT + 1)], server, wait_replicas=2)
    assert [[name(call) for call in trip] for trip in server.trips] == [
        ["open_queue"],
        *[["send", "HINCRBY", "WAIT"]] * 2,
    ]
    assert all(call.whole for trip in server.trips[1:] for call in trip if name(call) == "send")


def test_too_few_replicas_are_reported_with_their_number():
    with pytest.raises(
        NotReplicated, match=r"1 of 2 replicas confirmed .* within 3 s; the message is stored .*: send again"
    ):
        send([Outgoing(1)], Server(replicas=1), wait_replicas=2)


def test_too_few_replicas_are_reported_with_what_is_stored_and_what_is_not():
    count, messages = MAX_SENT, [Outgoing(n, id=f"m{n}") for n in range(2 * MAX_SENT + 50)]
    said = f"{count} of {len(messages)} messages are stored on the master .*, and the {count + 50} that are not stored"
    with pytest.raises(NotReplicated, match=said) as refusal:
        send(messages, Server(), wait_replicas=1)
    ids = [f"m{n}" for n in range(count)]
    assert [sent.id for sent in refusal.value.sent] == refusal.value.unconfirmed == ids
    assert refusal.value.unsent == list(range(count, len(messages)))


def test_positions_of_unstored_messages_are_the_callers_on_several_shards():
    server, queue = Server(shards=3), context(shards=3)
    messages = [Outgoing(n, id=f"m{n}") for n in range(30)]
    with pytest.raises(NotReplicated) as refusal:
        send(messages, server, queue, wait_replicas=1)
    stored = {sent.id for sent in refusal.value.sent}
    assert 0 < len(stored) < 30
    assert stored.isdisjoint(messages[position].id for position in refusal.value.unsent)
    assert len(stored) + len(refusal.value.unsent) == 30


def spanning(shards: int) -> QueueContext:
    """Return the context of a queue whose shards are on nodes of a cluster."""
    queue = context(shards)
    queue.spans_nodes = lambda: True
    return queue


class Failing(Server):
    """Answers one call of a command with an error.

    Args:
        at: how many calls of the command come before it.
    """

    def __init__(self, command: str, at: int, error: DelayqError, **given: Any) -> None:
        super().__init__(shards=3, **given)
        self.command, self.at, self.error, self.asked = command, at, error, 0

    def result(self, call: Command[Any]) -> Any:
        self.asked += name(call) == self.command
        fails = name(call) == self.command and self.asked == self.at + 1
        return self.error if fails else super().result(call)


IDS = [f"m{n}" for n in range(30)]
ONE_A_SHARD = [next(each for each in IDS if shard_of(each, 3) == shard) for shard in range(3)]


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("command", ["send", "get", "WAIT"])
def test_unavailable_shard_is_reported_after_confirmed_sends_to_all_others(command: str, at: int):
    server = Failing(command, at, ServerUnreachable("away"), existing=ONE_A_SHARD, replicas=1)
    with pytest.raises(ServerUnreachable, match=r"^away; at least .* of 30 messages are stored"):
        send([Outgoing(1, id=each) for each in IDS], server, spanning(3), wait_replicas=1)
    assert sum(size for _, size in server.sent()) == 30


@pytest.mark.parametrize("command", ["send", "get", "WAIT"])
def test_missing_replicas_do_not_hide_an_unavailable_shard(command: str):
    """Whether that has stored its messages is unknown, while NotReplicated says which are stored and which are not."""
    server = Failing(command, 0, ServerUnreachable("away"), existing=ONE_A_SHARD)
    with pytest.raises(ServerUnreachable, match=r"^away; at least .* of 30 messages are stored"):
        send([Outgoing(1, id=each) for each in IDS], server, spanning(3), wait_replicas=1)
    assert isinstance(server.error.__cause__, NotReplicated)
    assert len(server.sent()) == 2


@pytest.mark.parametrize("error", [ServerUnreachable("lost"), ServerNotReady("loading")])
def test_count_of_stored_messages_is_a_least_one_if_replicas_may_not_have_confirmed(error: DelayqError):
    server = Failing("WAIT", 0, error)
    server.shards = 1
    messages = [Outgoing(n) for n in range(2 * MAX_SENT)]
    with pytest.raises(type(error), match=f"; at least {MAX_SENT} of {len(messages)} messages are stored"):
        send(messages, server, wait_replicas=1)


def test_duplicates_are_reported_after_all_others_are_sent():
    messages = [Outgoing(n, id=f"m{n}", on_conflict="error") for n in range(10)]
    server = Server(existing=[f"m{n}" for n in range(8)])
    with pytest.raises(DuplicateMessage, match=r"message id 'm0', 'm1', 'm2', 'm3', 'm4'… exists already: it was left"):
        send(messages, server)
    assert server.sent() == [("send", 10)]


@pytest.mark.parametrize(
    ("message", "error", "why"),
    [
        (
            Outgoing(1, on_conflict="drop"),  # type: ignore[arg-type]
            InvalidInput,
            "unknown on_conflict 'drop'; expected one of ignore, replace, error",
        ),
        (Outgoing(1, delay=1, at=dt.datetime.now(dt.UTC)), InvalidTime, "were given: give one of them"),
        (Outgoing(1, max_retries=-1), InvalidInput, "max_retries -1 is not a whole number from 0 to 1,000,000"),
        (Outgoing(1, max_retries=True), InvalidInput, "max_retries True is not"),
        (Outgoing(1, expires_in=0), InvalidTime, "expires_in=0 ends before the message is due: give a longer time"),
        (Outgoing(1, delay=5, expires_in=5), InvalidTime, "expires_in=5 ends before"),
        (Outgoing(1, expires_in=-1), InvalidTime, "expires_in -1 is not 0 or more seconds"),
        (Outgoing("x" * 100), PayloadTooLarge, "at most 50 are allowed"),
        ("payload", InvalidInput, "'payload' is not an Outgoing"),
    ],
)
def test_one_invalid_message_prevents_all_from_being_sent(message: Any, error: type[Exception], why: str):
    server = Server()
    with pytest.raises(error, match=why):
        send([Outgoing(1), message], server, context(max_payload=50))
    assert server.trips == []


@pytest.mark.parametrize("replicas", [-1, 1.5, True, "1"])
def test_invalid_number_of_replicas_is_refused(replicas: Any):
    with pytest.raises(InvalidInput, match=r"wait_replicas .* is not a whole number from 0 to 1,000"):
        send([Outgoing(1)], wait_replicas=replicas)


@pytest.mark.parametrize(
    ("delay", "at", "word"),
    [
        (None, None, "+0"),
        (0, None, "+0"),
        (1.5, None, "+1500"),
        (dt.timedelta(minutes=1), None, "+60000"),
        (None, dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC), 5000),
    ],
)
def test_due_time_is_passed_to_the_scripts_in_milliseconds(delay: Any, at: Any, word: Any):
    assert due_word(delay, at) == word


@pytest.mark.parametrize("wait_replicas", [0, 1])
def test_messages_for_other_shards_are_stored_before_the_error_of_an_unavailable_one(wait_replicas: int):
    queue, server = context(3), Server(3, replicas=1)
    queue.spans_nodes = lambda: True
    away = ServerUnreachable("the node is away")

    def reply(call: Command[Any]) -> Any:
        return away if name(call) == "send" and "q#1" in call.key else call.read(server.answer(call))

    def run(steps: Any) -> Any:
        calls = next(steps)
        while True:
            server.trips.append(calls)
            calls = steps.send([reply(call) for call in calls])

    there = [Outgoing(n, id=f"m{n}") for n in range(1000)]
    with pytest.raises(ServerUnreachable, match=r"away; at least (\d+) of 1,000 messages are stored") as refused:
        run(send_many(queue, there, wait_replicas))
    healthy = sum(shard_of(each.id or "", 3) != 1 for each in there)
    assert f"at least {healthy} of" in str(refused.value)
    tried = [call for trip in server.trips for call in trip if name(call) == "send" and "q#1" in call.key]
    assert len(tried) == (1 if wait_replicas else -(-(1000 - healthy) // MAX_SENT))
