"""What middleware can do to a send, on every kind of client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from delayq import Middleware, Outgoing, Queue, Sending, SentMessage
from delayq.errors import DuplicateMessage, InvalidInput
from tests.contract.conftest import Make, Now

Send = Callable[[Queue, Any], Any]
SENDS: dict[str, Send] = {
    "send": lambda queue, payload: queue.send(payload),
    "send_many": lambda queue, payload: queue.send_many([Outgoing(payload)]),
    "send_delay_msg": lambda queue, payload: queue.send_delay_msg(payload, 0),
}


def sends() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)


def stamped(outgoing: Outgoing) -> Outgoing:
    return msgspec.structs.replace(outgoing, headers={**(outgoing.headers or {}), "tenant": "a"})


@sends()
def test_message_is_sent_as_middleware_returns_it(queue: Queue, now: Now, send: Send):
    queue.middleware.before_send(stamped)
    queue.middleware.before_send(
        lambda outgoing: msgspec.structs.replace(outgoing, payload={"wrapped": outgoing.payload}, delay=5, id="chosen")
    )
    send(queue, "x")
    assert queue.receive() == []
    now.later(5)
    (message,) = queue.receive()
    assert (message.id, message.payload, message.headers) == ("chosen", {"wrapped": "x"}, {"tenant": "a"})


@sends()
def test_message_is_unchanged_if_middleware_returns_none(queue: Queue, send: Send):
    seen: list[Outgoing] = []
    queue.middleware.before_send(seen.append)
    send(queue, "x")
    assert [message.payload for message in queue.receive()] == ["x"]
    assert [outgoing.payload for outgoing in seen] == ["x"]


@sends()
def test_error_in_before_send_reaches_the_sender_and_nothing_is_sent(queue: Queue, send: Send):
    @queue.middleware.before_send
    def forbid(outgoing: Outgoing) -> None:
        raise PermissionError(f"not {outgoing.payload}")

    with pytest.raises(PermissionError, match="not x"):
        send(queue, "x")
    assert queue.stats().sent == 0


@sends()
def test_error_in_after_send_is_only_logged(queue: Queue, send: Send, caplog: pytest.LogCaptureFixture):
    @queue.middleware.after_send
    def count(_outgoing: Outgoing, _sent: SentMessage) -> None:
        raise OSError("no counter")

    send(queue, "x")
    assert queue.stats().sent == 1
    printed = caplog.text
    assert "middleware failed" in printed
    assert "OSError: no counter" in printed


@sends()
def test_around_send_sees_the_result_of_the_send(queue: Queue, send: Send):
    seen: list[Any] = []

    @queue.middleware.around_send
    def watch(sending: Sending) -> Iterator[None]:
        seen.append((sending.queue, len(sending.messages), sending.sent))
        yield
        seen.append(sending.sent[0])

    result = send(queue, "x")
    assert seen == [("jobs", 1, []), result if isinstance(result, SentMessage) else result[0]]


def test_middleware_can_tell_a_batch_from_a_single_message(queue: Queue):
    seen: list[tuple[bool, int]] = []
    paired: list[tuple[Any, str]] = []

    @queue.middleware.around_send
    def watch(sending: Sending) -> Iterator[None]:
        yield
        seen.append((sending.is_batch, len(sending.sent)))

    queue.middleware.after_send(lambda outgoing, sent: paired.append((outgoing.payload, sent.id)))
    queue.send("x", id="x")
    queue.send_many(Outgoing(n, id=str(n)) for n in range(300))
    queue.send_many([])
    assert seen == [(False, 1), (True, 300), (True, 0)]
    assert paired == [("x", "x"), *[(n, str(n)) for n in range(300)]]


def test_send_error_passes_through_middleware_to_the_sender(queue: Queue):
    seen: list[BaseException] = []
    calls: list[Any] = []
    queue.middleware.after_send(lambda *arguments: calls.append(arguments))

    @queue.middleware.around_send
    def swallow(_: Sending) -> Iterator[None]:
        try:
            yield
        except DuplicateMessage as error:
            seen.append(error)

    queue.send("x", id="a")
    with pytest.raises(DuplicateMessage):
        queue.send("y", id="a", on_conflict="error")
    assert len(seen) == 1
    assert len(calls) == 1
    assert [message.payload for message in queue.receive()] == ["x"]


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize("returned", ["text", 5, {"payload": 1}, False])
def test_wrong_return_value_of_middleware_is_refused(queue: Queue, returned: Any):
    @queue.middleware.before_send
    def wrong(_: Outgoing) -> Any:
        return returned

    with pytest.raises(InvalidInput, match=r"wrong returned .*: return an Outgoing or None"):
        queue.send("x")
    assert queue.stats().sent == 0


@pytest.mark.parametrize("messages", [[], [Outgoing(1)] * 2])
def test_middleware_cannot_drop_or_add_messages(queue: Queue, messages: list[Outgoing]):
    @queue.middleware.around_send
    def other(sending: Sending) -> Iterator[None]:
        sending.messages = messages
        yield

    with pytest.raises(InvalidInput, match=rf"middleware turned 1 message into {len(messages)}"):
        queue.send("x")
    assert queue.stats().sent == 0


@pytest.mark.parametrize("wrong", [5, ["x"], [Outgoing(1), None]])
def test_middleware_never_sees_invalid_messages(queue: Queue, wrong: Any):
    seen: list[Outgoing] = []
    queue.middleware.before_send(seen.append)
    with pytest.raises(InvalidInput, match="send_many"):
        queue.send_many(wrong)
    assert seen == []
    assert queue.stats().sent == 0


def test_queues_can_share_middleware(make: Make):
    shared = Middleware()
    shared.before_send(stamped)
    for name in ("one", "two"):
        queue = make(name, middleware=shared)
        assert queue.middleware is shared
        queue.send("x")
        assert [message.headers for message in queue.receive()] == [{"tenant": "a"}]
    other = make("three")
    other.send("x")
    assert [message.headers for message in other.receive()] == [{}]
