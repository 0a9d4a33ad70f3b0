"""Which handlers get a checked payload, and what registration refuses."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict
from unittest.mock import MagicMock

import msgspec
import pydantic
import pytest

from delayq import Message, Outgoing, Queue
from delayq.errors import InvalidInput, PayloadMismatch, UnreadableEnvelope
from delayq.model.envelope import RAW, Envelope, encode_envelope, parse
from delayq.model.outcome import Dead, of_error
from delayq.model.typed_payload import adapt, reader

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTheChecker

    import delayq as only_for_the_checker


@dataclass
class Order:
    id: int
    total: float = 0.0
    placed: dt.datetime | None = None

    def __post_init__(self) -> None:
        if self.total < 0:
            raise ValueError("total is negative")


class Refund(msgspec.Struct, tag=True):
    order: Order


class Payment(msgspec.Struct, tag=True):
    cents: Annotated[int, msgspec.Meta(gt=0)]


@dataclass
class Picture:
    name: str
    pixels: bytes


class Pair(NamedTuple):
    a: int
    b: str


class Name(TypedDict):
    name: str


class Opaque:
    pass


def message_of(payload: Any) -> Message:
    created, envelope = parse(b"1700000000000" + encode_envelope(payload, 3))
    return Message(None, 0, "a", created, envelope, created, None, created, created, "r")


def given(handler: Callable[..., Any], payload: Any) -> Any:
    return adapt(handler)(message_of(payload))


class Handlers:
    """Handlers that are not typed."""

    @staticmethod
    def bare(message):
        return message

    @staticmethod
    def of_messages(message: Message) -> Message:
        return message

    @staticmethod
    def of_anything(message: Any) -> Any:
        return message

    @staticmethod
    def of_messages_with_anything(message: Message[Any]) -> Message:
        return message

    @staticmethod
    def of_a_name_for_the_checker(message: only_for_the_checker.Message) -> Message:
        return message

    @staticmethod
    def returns_what_cannot_be_resolved(message: Message) -> OnlyForTheChecker:
        return message  # type: ignore[return-value]

    @staticmethod
    def of_many(*messages: Order) -> None:
        pass

    @staticmethod
    def of_names(*, order: Order) -> None:
        pass

    mock = MagicMock()
    printing = print
    written_in_c = staticmethod(int)
    part = functools.partial(of_messages)


@pytest.mark.parametrize("name", [name for name in vars(Handlers) if not name.startswith("__")])
def test_handler_without_a_type_is_called_unchanged(name: str):
    handler = getattr(Handlers, name)
    assert adapt(handler) is handler


def of_order(order: Order) -> Order:
    return order


def of_message(message: Message[Order]) -> Message[Order]:
    return message


def test_typed_message_has_a_payload_of_its_type():
    message = given(of_message, {"id": 1, "placed": "2030-01-01T00:00:00Z"})
    assert isinstance(message, Message)
    assert message.payload == Order(1, 0.0, dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
    assert message.payload is message.payload


def test_handler_annotated_with_the_type_gets_the_payload():
    assert given(of_order, {"id": 1}) == Order(1)


def test_payload_read_before_is_decoded_again_as_the_type():
    message = message_of({"id": 1})
    assert message.payload == {"id": 1}
    assert adapt(of_message)(message).payload == Order(1)


@pytest.mark.parametrize(
    ("wanted", "payload"),
    [
        (Order, Order(1, 2.5, dt.datetime(2030, 1, 1, tzinfo=dt.UTC))),
        (Refund, Refund(Order(7))),
        (Refund | Payment, Payment(5)),
        (list[Order], [Order(1), Order(2)]),
        (Pair, Pair(1, "b")),
        (Name, {"name": "x"}),
        (dict[str, int], {"a": 1}),
        (dict, {"a": [1]}),
        (dict[str, object], {"a": [1, None], "b": {"c": 1.5}}),
        (list[object] | None, ["x", {"a": 1}]),
        (str, "text"),
        (Order | None, None),
        (bytes, b"\x00raw"),
        (bytes | None, b"\x00raw"),
        (bytes | int, 5),
        (Annotated[bytes, msgspec.Meta(max_length=9)], b"\x00raw"),
        (Picture, Picture("dot", b"\x00\xff")),
        (dict[str, bytes], {"pixels": b"\x00\xff"}),
        (Annotated[int, msgspec.Meta(ge=3)], 3),
    ],
)
def test_sent_value_is_received_as_its_type(wanted: Any, payload: Any):
    def handler(payload):
        return payload

    handler.__annotations__["payload"] = wanted
    back = given(handler, payload)
    assert back == payload
    assert type(back) is type(payload)


@pytest.mark.parametrize(
    ("wanted", "payload", "expected"),
    [
        (Order, {"id": "x"}, "the payload is not a valid Order: Expected `int`, got `str` - at `$.id`"),
        (Order, {"total": 1}, "the payload is not a valid Order: Object missing required field `id`"),
        (Order, {"id": 1, "total": -1}, "the payload is not a valid Order: total is negative"),
        (
            Refund | Payment,
            {"type": "Payment", "cents": 0},
            "the payload is not a valid Refund | Payment: Expected `int` >= 1 - at `$.cents`",
        ),
        (list[Order], [{"id": 1}, {"id": None}], r"Expected `int`, got `null` - at `$[1].id`"),
        (Order, b'{"id": 1}', "the payload is not a valid Order: Expected `object`, got `bytes`"),
        (bytes, {"id": 1}, "the payload is not bytes: it was sent as JSON"),
        (bytes, "AP8=", "the payload is not bytes: it was sent as JSON"),
        (bytes | None, "AP8=", "it was sent as JSON"),
        (Annotated[bytes, msgspec.Meta(max_length=9)], "AP8=", "it was sent as JSON"),
        (Annotated[bytearray, "of pixels"] | int, "AP8=", "it was sent as JSON"),
        (Annotated[memoryview, msgspec.Meta(extra={"of": "pixels"})], "AP==", "it was sent as JSON"),
        (Picture, {"name": "dot", "pixels": "plain"}, "Invalid base64 encoded string - at `$.pixels`"),
    ],
)
def test_payload_of_another_shape_is_a_mismatch_that_names_the_field(wanted: Any, payload: Any, expected: str):
    def handler(payload):
        pytest.fail(f"it was called with {payload}")

    handler.__annotations__["payload"] = wanted
    message = message_of(payload)
    with pytest.raises(PayloadMismatch) as raised:
        adapt(handler)(message)
    assert expected in str(raised.value)
    outcome = of_error(raised.value, message)
    assert isinstance(outcome, Dead)
    assert (outcome.reason, outcome.counted) == ("payload-mismatch", True)


def test_body_that_is_not_json_is_unreadable_and_not_a_mismatch():
    with pytest.raises(UnreadableEnvelope, match="not valid JSON"):
        reader(Order)(Envelope(1, RAW + 1, b"{", 3))


def test_type_defined_in_a_function_is_found_while_the_function_runs():
    @dataclass
    class Local:
        n: int

    def handler(payload: Local) -> Any:
        return payload

    def of_messages(message: Message[Local]) -> Any:
        return message.payload

    assert isinstance(handler.__annotations__["payload"], str)  # postponed, as everywhere in this file
    assert given(handler, {"n": 1}) == Local(1)
    assert given(of_messages, {"n": 1}) == Local(1)


def test_quoted_name_within_a_type_is_found():
    def handler(message: Any) -> Any:
        return message.payload

    handler.__annotations__["message"] = Message["Order"]
    assert given(handler, {"id": 1}) == Order(1)


class Callables:
    def method(self, order: Order) -> Order:
        return order

    def __call__(self, message: Message[Order]) -> Order:
        return message.payload


@pytest.mark.parametrize(
    "handler",
    [Callables().method, Callables(), functools.partial(of_order), functools.lru_cache(lambda order: order)],
    ids=["method", "object", "partial", "untyped"],
)
def test_annotations_of_methods_objects_and_partials_are_found(handler: Callable[..., Any]):
    result = given(handler, {"id": 1})
    assert result == Order(1) or result.payload == {"id": 1}


def of_unknown(order: OnlyForTheChecker) -> None:
    pass


def of_opaque(order: Opaque) -> None:
    pass


def of_unreadable(order: Order | list[int] | tuple[int]) -> None:
    pass


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (of_unknown, "handler of_unknown takes 'OnlyForTheChecker', which cannot be resolved"),
        (of_opaque, "handler of_opaque takes Opaque, which a payload cannot be: annotate it with Message"),
        (of_unreadable, "handler of_unreadable takes"),
    ],
)
def test_annotation_that_no_payload_can_meet_is_refused_at_registration(handler: Callable[..., Any], expected: str):
    with Queue("jobs", url="redis://localhost:1") as queue, pytest.raises(InvalidInput) as raised:
        queue.handler(handler)
    assert expected in str(raised.value)
    assert queue.handlers.main is None


def test_registered_handler_is_returned_unchanged_and_adapted_once():
    with Queue("jobs", url="redis://localhost:1") as queue:
        assert queue.handler(of_order) is of_order
        adapted: Any = queue.handlers.main
        assert adapted is not of_order
        assert adapt(adapted) is adapted
        assert (adapted.__name__, adapted.__module__) == ("of_order", __name__)


def test_adapted_coroutine_function_is_still_async():
    async def handler(order: Order) -> Order:
        return order

    adapted = adapt(handler)
    assert inspect.iscoroutinefunction(adapted)
    with pytest.raises(StopIteration) as stopped:
        adapted(message_of({"id": 1})).send(None)
    assert stopped.value.value == Order(1)


def test_outgoing_takes_a_dataclass_and_a_struct():
    assert Outgoing(Order(1)).payload == Order(1)
    assert parse(b"1700000000000" + encode_envelope(Payment(1), 3))[1].body == b'{"type":"Payment","cents":1}'


def takes_many(messages: list[Message]) -> None: ...


def takes_pairs(messages: dict[str, tuple[Message[Order], int]]) -> None: ...


def takes_message_of_messages(message: Message[list[Message]]) -> None: ...


@pytest.mark.parametrize("handler", [takes_many, takes_pairs, takes_message_of_messages])
def test_message_within_a_type_is_refused_at_registration(handler: Callable[..., Any]):
    with pytest.raises(InvalidInput, match=rf"{handler.__name__} takes .*Message.*@queue.batch_handler\(\)"):
        adapt(handler)


class Placed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    number: int
    at: dt.datetime


PLACED = Placed(number=5, at=dt.datetime(2026, 1, 2, tzinfo=dt.UTC))


@pytest.mark.parametrize(
    ("wanted", "payload"),
    [(Placed, PLACED), (list[Placed], [PLACED]), (dict[str, Placed], {"a": PLACED}), (Placed | None, None)],
    ids=str,
)
def test_pydantic_model_arrives_as_it_was_sent(wanted: Any, payload: Any):
    assert reader(wanted)(parse(b"0" * 13 + encode_envelope(payload, 3))[1]) == payload


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"number": "s3cret", "at": "2026-01-02T00:00:00Z"}, r"Input should be a valid integer \(number\)$"),
        ([1], "Input should be an object$"),
        (b"x", "Expected `Placed`, got `bytes`$"),
    ],
    ids=["field", "list", "bytes"],
)
def test_payload_that_does_not_fit_a_pydantic_model_is_not_quoted(payload: Any, why: str):
    with pytest.raises(PayloadMismatch, match=f"the payload is not a valid Placed: {why}"):
        reader(Placed)(parse(b"0" * 13 + encode_envelope(payload, 3))[1])
