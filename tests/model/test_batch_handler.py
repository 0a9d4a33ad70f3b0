"""What a batch handler gets, and how its return value is read."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from delayq import Ack, Message, Reject
from delayq.errors import InvalidInput, ReturnedFalse
from delayq.model.batch_handler import BatchHandler, Batching, verdicts_of
from delayq.model.envelope import JSON, Envelope
from delayq.model.middleware import Middleware
from delayq.model.outcome import DONE, Dead, Failed
from delayq.model.typed_payload import adapt_batch

if TYPE_CHECKING:
    from collections.abc import Sequence as OnlyForTheChecker


def message(name: str, body: bytes = b"1") -> Message:
    class Owner:
        name = "jobs"

    return Message(Owner(), 0, name, 0, Envelope(1, JSON, body, 3), 0, None, 0.0, 0, "0.0.0.0-1")


def batch(names: str) -> list[Message]:
    return [message(name) for name in names]


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (None, [None, None]),
        (True, [True, True]),
        (False, [False, False]),
        ({}, [None, None]),
        ({"b": False}, [None, False]),
        (MappingProxyType({"a": True, "b": None}), [True, None]),
    ],
)
def test_return_value_gives_each_message_an_outcome(returned: Any, expected: list[Any]):
    assert verdicts_of(returned, batch("ab")) == expected


def test_errors_and_acks_are_outcomes():
    error, ack = Reject("no"), Ack()
    assert verdicts_of({"a": error, "b": ack}, batch("ab")) == [error, ack]


def test_deliveries_of_one_id_get_the_same_outcome():
    """One of them is stale; only the server knows which."""
    assert verdicts_of({"a": False}, batch("aa")) == [False, False]


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        ({"c": True}, "'c', which was not in its batch"),
        ({1: True}, "1, which was not in its batch"),
        ({"a": 1}, "1 for 'a': return"),
        ({"a": Reject}, "for 'a': return"),
        ([True, False], "of type list"),
        (0, "of type int"),
        ("fine", "of type str"),
    ],
)
def test_invalid_return_value_is_refused(returned: Any, match: str):
    with pytest.raises(InvalidInput, match=match):
        verdicts_of(returned, batch("ab"))


def test_message_named_twice_is_refused():
    both = batch("ab")
    with pytest.raises(InvalidInput, match="two verdicts for 'a'"):
        verdicts_of({both[0]: True, "a": False}, both)


def run(batching: Batching[Any], messages: list[Any], answer: Any) -> list[Any]:
    """Handle a batch whose handler returns or raises `answer`."""
    steps = batching.steps(messages)
    try:
        next(steps)
        steps.throw(answer) if isinstance(answer, BaseException) else steps.send(answer)
    except StopIteration as ended:
        return [outcome for _, outcome in ended.value]
    raise AssertionError("more than one step")


def batching(middleware: Middleware | None = None) -> Batching[Any]:
    return Batching(BatchHandler.of(lambda _: None, 10, 0), middleware or Middleware(), lambda _: False)


def test_outcomes_are_in_the_order_of_the_messages():
    answer = {"b": Reject("no"), "c": False}
    assert run(batching(), batch("abc"), answer) == [
        DONE,
        Dead("no", "Reject: no"),
        Failed(error="the handler returned False"),
    ]


def test_handler_can_change_the_list_without_effect():
    steps = batching().steps(batch("ab"))
    next(steps).clear()
    with pytest.raises(StopIteration) as ended:
        steps.send(None)
    assert [each.id for each, _ in ended.value.value] == ["a", "b"]


def test_batch_error_keeps_its_traceback():
    """If the error were thrown into the middleware of each message, its traceback would grow with each."""
    middleware = Middleware()
    middleware.after_delivery(lambda _message, _error: None)
    error = ValueError("no table")
    outcomes = run(batching(middleware), batch("abcdefgh"), error)
    assert all(outcome.cause is error for outcome in outcomes)
    depth, trace = 0, error.__traceback__
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next
    assert depth < 8


def test_middleware_can_replace_the_error_of_one_message():
    middleware = Middleware()

    @middleware.around_delivery
    def tell(each: Message) -> Iterator[None]:
        try:
            yield
        except ReturnedFalse:
            raise Reject(f"{each.id} was false") from None

    outcomes = run(batching(middleware), batch("ab"), {"b": False})
    assert outcomes == [DONE, Dead("b was false", "Reject: b was false")]


def plain(messages: list[Message]) -> None: ...
def bare(messages: list) -> None: ...  # type: ignore[type-arg]
def unsaid(messages): ...
def unknown(messages: OnlyForTheChecker[Message]) -> None: ...
def anything(messages: list[Any]) -> None: ...
def numbers(payloads: list[int]) -> list[int]:
    return payloads


@pytest.mark.parametrize("function", [plain, bare, unsaid, anything, print])
def test_function_without_annotations_is_called_unchanged(function: Any):
    assert adapt_batch(function) == (function, None)


def test_payloads_are_decoded_before_the_handler_runs():
    call, read = adapt_batch(numbers)
    assert read is not None
    messages = batch("ab")
    assert [read(each) for each in messages] == [1, 1]
    assert call(messages) == [1, 1]


def one(payload: int) -> None: ...
def of_one(message: Message[int]) -> None: ...


@pytest.mark.parametrize("function", [one, of_one])
def test_function_that_takes_a_single_message_is_refused(function: Any):
    with pytest.raises(InvalidInput, match=r"but a batch is a list: annotate it with list\[Message\]"):
        adapt_batch(function)


def test_sequence_imported_only_for_type_checking_is_named():
    with pytest.raises(InvalidInput, match="cannot be resolved"):
        adapt_batch(unknown)
