"""The configuration of a queue: its limits, retries and ledger, and how they are written, stored and read.

They are fields of the queue's ``meta`` key in Redis, so all programs that use the queue obey the same ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from delayq.errors import InvalidInput
from delayq.model import backoff as backoffs
from delayq.model.backoff import MAX_RETRIES, Backoff, WrittenBackoff

Rate: TypeAlias = str | UnsetType | None
Count: TypeAlias = int | UnsetType | None
Events: TypeAlias = bool | int | UnsetType | None
Waits: TypeAlias = Backoff | str | UnsetType | None
Changes: TypeAlias = dict[str, int | str | None]
"""Fields of ``meta`` with their new values. None removes a field; "N?" sets N only if the field has no value yet."""

FIELDS: Final = ("rate", "period_ms", "concurrency", "per_key", "events", "max_retries", "backoff", "max_dead")
LIMITS: Final = {"rate", "period_ms", "concurrency", "per_key"}
MOST_MESSAGES = 100_000  # each hand-out of a period is kept in Redis
MOST_AT_ONCE = 1_000_000
EVENTS = "100000?"
MOST_EVENTS = 10_000_000
MAX_BACKOFF = 1000  # characters: clients read it each minute
DAY_MS = 86_400_000

_UNITS = {"d": DAY_MS, "h": 3_600_000, "min": 60_000, "m": 60_000, "s": 1000, "ms": 1}
_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_SPAN = re.compile(r"(\d{0,9})(ms|s|min|m|h|d)", re.ASCII)


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The stored settings of a queue, which apply to all who use it. None means no limit, or that each program decides.

    Attributes:
        rate: the most hand-outs in any span of time, such as "100/s".
        concurrency: the most messages that are handed out and not settled at any time.
        concurrency_per_key: the same for messages that share a key.
        events: entries that the ledger of each shard keeps; None for no ledger.
        max_retries: deliveries after the first one, for messages sent without `max_retries`.
        backoff: the waits before retries, such as "exponential:base=10s,factor=3,maximum=3600s,jitter=0.1".
        max_dead: the most dead letters that are kept; the oldest are dropped first. Each shard keeps an equal part, and
            at least one.
    """

    rate: str | None = None
    concurrency: int | None = None
    concurrency_per_key: int | None = None
    events: int | None = None
    max_retries: int | None = None
    backoff: str | None = None
    max_dead: int | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of its limits a queue uses, and how late its schedules are, at one instant.

    Attributes:
        concurrency: the limit, or None.
        running: messages that are handed out and not settled, which count towards the limit.
        rate, period_ms: the rate limit: at most `rate` hand-outs in any `period_ms` milliseconds; or None.
        handed_out: hand-outs within the last period; 0 without a rate.
        per_key: the concurrency limit of each key, or None.
        key_slots: running messages that have a key, over all keys.
        key_waiting: messages that wait for others with their key to end.
        late_schedules: schedules whose slot has passed, and whose occurrence no consumer has taken.
        latest_ms: how late the latest of them is; 0 if there is none.
    """

    concurrency: int | None = None
    running: int = 0
    rate: int | None = None
    period_ms: int | None = None
    handed_out: int = 0
    per_key: int | None = None
    key_slots: int = 0
    key_waiting: int = 0
    late_schedules: int = 0
    latest_ms: int = 0


def changes(
    rate: Rate = UNSET,
    concurrency: Count = UNSET,
    concurrency_per_key: Count = UNSET,
    events: Events = UNSET,
    max_retries: Count = UNSET,
    backoff: Waits = UNSET,
    max_dead: Count = UNSET,
) -> Changes:
    """Return the fields to store, without those that are UNSET.

    Args:
        rate: messages in a span of time: 1 to 100,000 in 1 ms to a day, as in "100/s", "5/10s", "20/100ms" or "9/min".
        concurrency, concurrency_per_key, max_dead: 1 to 1,000,000.
        events: 1 to 10,000,000. True keeps the stored number, or sets 100,000 if there is none. False and None mean no
            ledger.
        max_retries: 0 to 1,000,000.
        backoff: one from `delayq.backoff`, or its text.

    Raises:
        InvalidInput: names the argument.
    """
    found: Changes = {}
    if rate is not UNSET:
        found["rate"], found["period_ms"] = (None, None) if rate is None else parse_rate(rate)
    for what, field, most in (
        ("concurrency", "concurrency", concurrency),
        ("concurrency_per_key", "per_key", concurrency_per_key),
        ("max_dead", "max_dead", max_dead),
    ):
        if most is not UNSET:
            found[field] = None if most is None else _checked(most, what)
    if events is not UNSET:
        found["events"] = _entries(events)
    if max_retries is not UNSET:
        found["max_retries"] = None if max_retries is None else check_retries(max_retries)
    if backoff is not UNSET:
        found["backoff"] = None if backoff is None else _written(backoff)
    return found


def wishes(
    rate: str | None, concurrency: int | None, concurrency_per_key: int | None, events: bool | int | None = None
) -> Changes:
    """Return `changes` for a client, for whom None means unset; raises InvalidInput."""
    return changes(
        UNSET if rate is None else rate,
        UNSET if concurrency is None else concurrency,
        UNSET if concurrency_per_key is None else concurrency_per_key,
        UNSET if events is None else events,
    )


def differences(wishes: Changes, stored: Configuration) -> Iterator[tuple[str, object, object]]:
    """Return the settings in which a client differs from the stored ones: name, stored value, the client's value."""
    values = [None if value is None else str(value).removesuffix("?").encode() for value in map(wishes.get, FIELDS)]
    wished = configured(values)
    for field, name in (
        ("rate", "rate"),
        ("concurrency", "concurrency"),
        ("per_key", "concurrency_per_key"),
        ("events", "events"),
    ):
        found, wish = getattr(stored, name), getattr(wished, name)
        if field in wishes and found != wish and not (found and wishes[field] == EVENTS):
            yield name, found, wish


def check_shards(shards: int | None, wanted: Changes, queue: str = "a queue") -> None:
    """Raise InvalidInput for limits on a queue with several shards, each of which would count on its own."""
    if wanted.keys() & LIMITS and shards is not None and shards > 1:
        raise InvalidInput(
            f"{queue} with shards={shards} takes no rate or concurrency limit, as each shard would count separately: "
            "use shards=1"
        )


def parse_rate(rate: object) -> tuple[int, int]:
    """Read a rate as a number of messages and a number of milliseconds; raises InvalidInput."""
    number, slash, span = rate.partition("/") if isinstance(rate, str) else (str(rate), "", "")
    if _COUNT.fullmatch(number) and 1 <= int(number) <= MOST_MESSAGES:
        if not slash:
            raise InvalidInput(f'rate {rate!r} has no unit of time: write it as "{number}/s"')
        if 1 <= _span_ms(span) <= DAY_MS:
            return int(number), _span_ms(span)
    raise InvalidInput(
        f"rate {rate!r} is not 1 to {MOST_MESSAGES} messages in 1 ms to 1 d: "
        'write it as "100/s", "5/10s", "20/100ms", "9/min", "500/h" or "10000/d"'
    )


def per_second(rate: float | str, what: str = "rate") -> float:
    """Return a rate as a number a second. It is given as a number, or as text for `parse_rate`.

    Raises:
        InvalidInput: it is neither, or not a finite number above 0.
    """
    number, slash, span = rate.partition("/") if isinstance(rate, str) else (rate, "", "")
    try:
        value = -1.0 if isinstance(rate, bool) else float(number) * (1000 / _span_ms(span.strip()) if slash else 1)
    except (TypeError, ValueError, ArithmeticError):
        value = -1.0
    if not 0 < value < math.inf:
        raise InvalidInput(f'{what} {rate!r} is not a number above 0: write it as 100, "100/s", "5/10s" or "30/min"')
    return value


def _span_ms(text: str) -> int:
    """Return the milliseconds that the part of a rate after the slash means; 0 if it is not a span of time."""
    match = _SPAN.fullmatch(text)
    return int(match[1] or 1) * _UNITS[match[2]] if match else 0


def show_rate(most: int, period_ms: int) -> str:
    """Return a rate as text, in the largest unit that fits."""
    unit, ms = next((unit, ms) for unit, ms in _UNITS.items() if period_ms % ms == 0)
    return f"{most}/{'' if period_ms == ms else period_ms // ms}{unit}"


def configured(values: Sequence[bytes | None]) -> Configuration:
    """Read the stored FIELDS. A value that cannot be read, written by another program, is ignored."""
    stored = dict(zip(FIELDS, values, strict=False))
    texts = {field: value.decode(errors="replace") for field, value in stored.items() if value}
    numbers = {field: int(text) for field, text in texts.items() if _COUNT.fullmatch(text)}
    rate, period_ms, retries, backoff = *map(numbers.get, ("rate", "period_ms", "max_retries")), stored.get("backoff")
    return Configuration(
        rate=show_rate(rate, period_ms) if rate and period_ms else None,
        concurrency=numbers.get("concurrency") or None,
        concurrency_per_key=numbers.get("per_key") or None,
        events=numbers.get("events") or None,
        max_dead=numbers.get("max_dead") or None,
        max_retries=None if retries is None else min(retries, MAX_RETRIES),
        backoff=None if backoff is None else _readable(backoff.decode(errors="replace")),
    )


def check_retries(max_retries: int) -> int:
    """Return a number of retries, 0 to 1,000,000, or raise InvalidInput."""
    if not isinstance(max_retries, int) or isinstance(max_retries, bool) or not 0 <= max_retries <= MAX_RETRIES:
        raise InvalidInput(f"max_retries {max_retries!r} is not a whole number from 0 to {MAX_RETRIES}")
    return max_retries


def _written(backoff: Backoff | str) -> str:
    """Return the text of a backoff; raises InvalidInput for one that cannot be stored."""
    found = backoffs.parse(backoff) if isinstance(backoff, str) else backoff
    if not isinstance(found, WrittenBackoff):
        raise InvalidInput(
            f"backoff {backoff!r} cannot be stored: use one from delayq.backoff (fixed, linear, exponential, "
            "sequence), or pass your own function to the constructor, Queue(backoff=…)"
        )
    if len(found.text) > MAX_BACKOFF:
        raise InvalidInput(f"backoff {found.text[:40]!r}… is longer than {MAX_BACKOFF} characters: give fewer waits")
    return found.text


def _readable(text: str) -> str | None:
    try:
        backoffs.parse(text)
    except InvalidInput:
        return None
    return text


def _checked(most: int, what: str) -> int:
    if isinstance(most, int) and not isinstance(most, bool) and 1 <= most <= MOST_AT_ONCE:
        return most
    raise InvalidInput(f"{what} {most!r} is not a whole number from 1 to {MOST_AT_ONCE}; use None for no limit")


def _entries(events: int | None) -> int | str | None:
    """Return how many entries the ledger should keep; None for no ledger."""
    if events is None or isinstance(events, bool):
        return EVENTS if events else None
    if isinstance(events, int) and 1 <= events <= MOST_EVENTS:
        return events
    raise InvalidInput(f"events {events!r} is not True, False or a whole number from 1 to {MOST_EVENTS}")
