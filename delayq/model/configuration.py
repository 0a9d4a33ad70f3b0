"""The configuration of a queue: its limits, retries and ledger, which apply to all programs that use the queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from delayq.errors import InvalidInput
from delayq.model.backoff import Backoff
from delayq.model.settings import FIELDS, LIMITS, SETTINGS, Changes

Rate: TypeAlias = str | UnsetType | None
Count: TypeAlias = int | UnsetType | None
Events: TypeAlias = bool | int | UnsetType | None
Waits: TypeAlias = Backoff | str | UnsetType | None


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The stored settings of a queue, which apply to all who use it. None means no limit, or that each program decides.

    Attributes:
        rate: the most deliveries in any span of time, such as "100/s".
        concurrency: the most messages that are handed out and not settled at any time.
        concurrency_per_key: the same for messages that share a key.
        events: how many events the ledger of each shard keeps; None for no ledger.
        max_retries: deliveries after the first one, for messages sent without `max_retries`.
        backoff: the waits before retries, such as "exponential:base=10s,factor=3,maximum=3600s,jitter=0.1".
        max_dead: the most dead letters that are kept; the oldest are dropped first. Each shard keeps an equal part, and
            at least one.
        max_length: the most messages that wait or run, dead letters not counted; sends beyond it are refused.
    """

    rate: str | None = None
    concurrency: int | None = None
    concurrency_per_key: int | None = None
    events: int | None = None
    max_retries: int | None = None
    backoff: str | None = None
    max_dead: int | None = None
    max_length: int | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of its limits a queue uses, and how late its schedules are, at one instant.

    Attributes:
        concurrency: the limit, or None.
        running: messages that are handed out and not settled, which count towards the limit.
        rate, period_ms: the rate limit: at most `rate` deliveries in any `period_ms` milliseconds; or None.
        handed_out: deliveries within the last period; 0 without a rate.
        per_key: the concurrency limit of each key, or None.
        key_slots: running messages that have a key, over all keys.
        key_waiting: messages that wait for others with their key to end.
        late_schedules: schedules whose slot has passed, and whose occurrence no consumer has taken.
        latest_ms: how late the latest of them is; 0 if there is none.
        max_length: the most messages that may wait or run, or None.
        length: how many wait or run; 0 without a `max_length`.
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
    max_length: int | None = None
    length: int = 0


def changes(**given: Any) -> Changes:
    """Return the fields to store for new values of settings, by name; UNSET means no change, None removes one.

    Raises:
        InvalidInput: names the argument.
        KeyError: an unknown name.
    """
    found: Changes = {}
    for name, value in given.items():
        if value is not UNSET:
            found |= SETTINGS[name].stored(value)
    return found


def wishes(**given: Any) -> Changes:
    """Return `changes` for a client, for whom None means unset; raises InvalidInput."""
    return changes(**{name: value for name, value in given.items() if value is not None})


def differences(wishes: Changes, stored: Configuration) -> Iterator[tuple[str, object, object]]:
    """Return the settings in which a client differs from the stored ones: name, stored value, the client's value."""
    values = [None if value is None else str(value).removesuffix("?").encode() for value in map(wishes.get, FIELDS)]
    wished = configured(values)
    for name, setting in SETTINGS.items():
        field, found, wish = setting.fields[0], getattr(stored, name), getattr(wished, name)
        if field in wishes and found != wish and not (found and str(wishes[field]).endswith("?")):
            yield name, found, wish


def check_shards(shards: int | None, wanted: Changes, queue: str = "a queue") -> None:
    """Raise InvalidInput for limits on a queue with several shards, each of which would count on its own."""
    if wanted.keys() & LIMITS and shards is not None and shards > 1:
        raise InvalidInput(
            f"{queue} with shards={shards} takes no rate, concurrency or length limit, as each shard would count "
            "separately: use shards=1"
        )


def configured(values: Sequence[bytes | None]) -> Configuration:
    """Read the stored FIELDS. A value that cannot be read, written by another program, is ignored."""
    stored = {field: value.decode(errors="replace") for field, value in zip(FIELDS, values, strict=False) if value}
    return Configuration(**{name: setting.read(stored) for name, setting in SETTINGS.items()})
