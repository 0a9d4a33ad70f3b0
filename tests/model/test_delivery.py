from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from delayq import Message, Outgoing
from delayq.errors import InvalidTime, UnreadableEnvelope
from delayq.model import outcome as oc
from delayq.model.delivery import Deliveries, receipt_of
from delayq.model.envelope import JSON, RAW, Envelope
from delayq.model.units import from_ms

SENT, DUE, HANDED, LEASE = 1_700_000_000_000, 1_700_000_010_000, 1_700_000_010_250.125, 30_000


class Owner:
    """A queue that notes which of its methods a message calls."""

    name = "emails"

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def settle(self, message: Message, outcome: oc.Outcome) -> None:
        self.asked.append((message.id, outcome))

    def extend(self, message: Message, seconds: float) -> None:
        self.asked.append((message.id, seconds))


def delivery(
    deliveries: str | None = None,
    owner: Any = None,
    max_retries: int = 2,
    expires_ms: int | None = None,
    **options: Any,
) -> Message:
    envelope = Envelope(
        1, options.pop("kind", JSON), options.pop("body", b'{"to":"a"}'), max_retries, expires_ms, **options
    )
    return Message(
        owner or Owner(),
        0,
        "m1",
        SENT,
        envelope,
        DUE,
        deliveries,
        HANDED,
        int(HANDED) + LEASE,
        receipt_of(deliveries, 125),
    )


def test_message_has_all_its_attributes():
    message = delivery("3.1.2.0", headers={"a": 1})
    seen = SimpleNamespace(**{name: getattr(message, name) for name in dir(message) if not name.startswith("_")})
    assert (seen.id, seen.queue, seen.payload, seen.body, seen.headers) == (
        "m1",
        "emails",
        {"to": "a"},
        b'{"to":"a"}',
        {"a": 1},
    )
    assert (seen.created_at, seen.due_at, seen.lease_until) == (
        from_ms(SENT),
        from_ms(DUE),
        from_ms(int(HANDED) + LEASE),
    )
    assert (seen.attempt, seen.max_retries, seen.receipt, seen.settled) == (4, 2, "3.1.2.0-125", False)
    assert seen.lateness == pytest.approx(0.250125, abs=1e-6)
    assert repr(message) == "<Message m1 of emails, attempt 4>"


def test_first_delivery_is_attempt_one_without_headers():
    message = delivery()
    assert (message.attempt, message.retries_used, message.receipt, message.headers) == (1, 0, "0.0.0.0-125", {})


def test_message_handed_out_at_its_due_time_is_not_late():
    envelope = Envelope(1, RAW, b"", 0)
    assert Message(Owner(), 0, "m", SENT, envelope, DUE, None, DUE, DUE + LEASE, "").lateness == 0


@pytest.mark.parametrize(
    ("deliveries", "used", "last", "past"),
    [
        (None, 0, False, False),
        ("0.5.0.0", 0, False, False),
        ("1.0.0.0", 1, False, False),
        ("2.0.0.0", 2, True, False),
        ("3.0.0.0", 3, True, True),
        ("3.0.1.0", 2, True, False),
        ("9.0.9.0", 0, False, False),
    ],
)
def test_counted_deliveries_use_up_the_retries_unless_they_were_reset(
    deliveries: str | None, used: int, last: bool, past: bool
):
    message = delivery(deliveries, max_retries=2)
    assert (message.retries_used, message.is_last, message.is_past_its_limit) == (used, last, past)


def test_first_attempt_of_a_message_without_retries_is_its_last():
    assert delivery(max_retries=0).is_last


@pytest.mark.parametrize(
    ("deliveries", "suspect"),
    [(None, False), ("1.0.0.1", False), ("2.0.0.1", True), ("2.0.0.2", True), ("2.0.0.0", False), ("5.0.3.2", True)],
)
def test_message_that_seems_to_kill_its_consumers_is_a_suspect(deliveries: str | None, suspect: bool):
    assert delivery(deliveries, max_retries=2).is_suspect is suspect


@pytest.mark.parametrize(("expires_ms", "expired"), [(None, False), (10_250, True), (10_251, False), (1, True)])
def test_message_expires_a_given_time_after_its_send(expires_ms: int | None, expired: bool):
    assert delivery(expires_ms=expires_ms).is_expired is expired


def test_payload_is_decoded_once_and_only_on_access():
    broken = delivery(body=b"{")
    assert broken.body == b"{"
    with pytest.raises(UnreadableEnvelope):
        _ = broken.payload
    message = delivery()
    assert message.payload is message.payload


def test_raw_payload_is_the_stored_body():
    assert delivery(kind=RAW, body=b"\x00\xff").payload == b"\x00\xff"


def test_extended_lease_is_shown():
    message = delivery()
    message.leased_until(DUE)
    assert message.lease_until == from_ms(DUE)


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        (lambda m: m.ack(), oc.Done()),
        (lambda m: m.nack(), oc.Failed()),
        (lambda m: m.nack(delay=1.5, error="E"), oc.Failed(1500, "E")),
        (lambda m: m.nack(dt.timedelta(seconds=2), ValueError("x")), oc.Failed(2000, "ValueError: x")),
        (lambda m: m.nack(error=5), oc.Failed(None, "5")),
        (lambda m: m.release(), oc.Released()),
        (lambda m: m.reject(), oc.Dead("rejected")),
        (lambda m: m.reject(None), oc.Dead("rejected")),
        (lambda m: m.reject("bad", KeyError("k")), oc.Dead("bad", "KeyError: 'k'")),
        (lambda m: m.reject("x" * 3000), oc.Dead("x" * 2000)),
        (lambda m: m.extend(60), 60),
    ],
)
def test_message_methods_call_the_queue(call: Any, asked: Any):
    owner = Owner()
    call(delivery(owner=owner))
    assert owner.asked == [("m1", asked)]


@pytest.mark.parametrize("delay", [-1, float("nan"), "5", 10**12])
def test_nack_with_an_invalid_delay_does_not_call_the_queue(delay: Any):
    owner = Owner()
    with pytest.raises(InvalidTime):
        delivery(owner=owner).nack(delay=delay)
    assert owner.asked == []


@pytest.mark.parametrize(
    ("stored", "read"), [(None, Deliveries(0, 0, 0, 0)), ("", Deliveries()), ("4.3.2.1", Deliveries(4, 3, 2, 1))]
)
def test_claimed_deliveries_are_decoded(stored: str | None, read: Deliveries):
    assert Deliveries.read(stored) == read


def test_options_of_an_outgoing_message_are_keyword_only():
    with pytest.raises(TypeError):
        Outgoing("payload", 5)  # type: ignore[call-arg]
    assert Outgoing("payload").on_conflict == "ignore"
