from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any

import pytest

from delayq.errors import InvalidInput, PayloadMismatch, Reject, RetryAfter, UnreadableEnvelope, Verdict
from delayq.model.envelope import Envelope, encode_envelope, parse
from delayq.model.message import Message
from delayq.model.outcome import (
    MAX_ERROR_CHARS,
    Dead,
    Done,
    Failed,
    cause,
    check_async_handler,
    check_handler,
    error_text,
    of_error,
    of_return,
)


@pytest.mark.parametrize("value", [None, True, 0, "", [], {"a": 1}])
def test_returning_is_done(value: Any):
    assert of_return(value) == Done()


def test_returning_false_is_a_failure():
    assert of_return(False) == Failed(error="the handler returned False")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("boom"), Failed(error="ValueError: boom")),
        (SystemExit(3), Failed(error="SystemExit: 3")),
        (Mute(), Failed(error="Mute")),
        (Reject("bad address"), Dead("bad address", "Reject: bad address")),
        (Reject(), Dead("rejected", "Reject: rejected")),
        (Reject(""), Dead("rejected", "Reject: ")),
        (Reject(None), Dead("rejected", "Reject: None")),  # type: ignore[arg-type]
        (Reject("x" * 5000), Dead("x" * MAX_ERROR_CHARS, ("Reject: " + "x" * 5000)[:MAX_ERROR_CHARS])),
        (RetryAfter(1.5), Failed(1500, "RetryAfter: retry after 1.5")),
        (RetryAfter(dt.timedelta(minutes=1), "busy"), Failed(60_000, "RetryAfter: busy")),
    ],
)
def test_handler_error_decides_the_outcome(error: BaseException, outcome: Any):
    assert of_error(error, None) == outcome


@pytest.mark.parametrize("error", [UnreadableEnvelope("cut"), PayloadMismatch("no number")])
def test_unreadable_payload_is_a_verdict_on_its_own_message_only(error: Exception):
    created, envelope = parse(b"1700000000000" + encode_envelope("x", 3))
    message = Message(None, 0, "a", created, envelope, created, None, created, created, "r")
    assert isinstance(of_error(error, message), Failed)

    def reader(_: Envelope) -> Any:
        raise error

    with pytest.raises(type(error)):
        message.read(reader)
    assert isinstance(of_error(error, message), Dead)


@pytest.mark.parametrize("delay", [-1, float("nan"), "soon", None])
def test_retry_after_with_an_invalid_delay_is_a_failure_that_says_so(delay: Any):
    outcome = of_error(RetryAfter(delay), None)
    assert isinstance(outcome, Failed)
    assert outcome.delay_ms is None
    assert outcome.error.startswith(f"InvalidTime: delay {delay!r} is not")


def test_verdicts_share_one_base_class():
    assert issubclass(Reject, Verdict)
    assert issubclass(RetryAfter, Verdict)


@pytest.mark.parametrize(
    ("error", "text"), [(None, ""), ("", ""), ("it broke", "it broke"), (5, "5"), (KeyError("k"), "KeyError: 'k'")]
)
def test_error_text_has_type_and_message(error: Any, text: str):
    assert error_text(error) == text


def test_long_error_is_cut():
    assert len(error_text("x" * 5000)) == len(error_text(ValueError("x" * 5000))) == MAX_ERROR_CHARS


@pytest.mark.parametrize("error", ["caf\udce9", FileNotFoundError("caf\udce9")])
def test_any_error_text_can_be_stored(error: Any):
    """Python decodes file names that are not UTF-8 to such characters."""
    assert error_text(error).endswith(r"caf\udce9")
    assert len(error_text("\udce9" * MAX_ERROR_CHARS).encode()) == MAX_ERROR_CHARS


@pytest.mark.parametrize(
    ("reason", "error", "expected"),
    [
        ("no price", "Reject: no price", "Reject: no price"),
        ("retries-exhausted", "ValueError: boom", "retries-exhausted: ValueError: boom"),
        ("unwanted", None, "unwanted"),
        ("unwanted", "", "unwanted"),
        (None, "ValueError: boom", "ValueError: boom"),
        (None, None, ""),
    ],
)
def test_cause_of_death_does_not_repeat_itself(reason: str | None, error: str | None, expected: str):
    assert cause(reason, error) == expected


@pytest.mark.parametrize("check", [check_handler, check_async_handler])
@pytest.mark.parametrize("handler", [lambda: None, lambda _message, _more: None], ids=["none", "two"])
def test_handler_that_cannot_be_called_with_a_message_alone_is_refused(check: Callable[[object], None], handler: Any):
    with pytest.raises(InvalidInput, match="cannot be called with only the message"):
        check(handler)


@pytest.mark.parametrize("handler", [print, lambda *_: None, {}.update, functools.partial(max, 1)])
def test_handler_that_may_be_called_with_a_message_alone_is_accepted(handler: Any):
    check_handler(handler)
