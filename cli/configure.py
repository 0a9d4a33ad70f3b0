"""configure: the settings of a queue that are stored in Redis and hold for all programs."""

from __future__ import annotations

from typing import Any, TypeVar

import click
import msgspec
from msgspec import UNSET, UnsetType

from delayq.errors import InvalidInput
from delayq.model import backoff as backoffs
from delayq.model.backoff import MAX_RETRIES
from delayq.model.configuration import (
    MOST_AT_ONCE,
    MOST_EVENTS,
    Configuration,
    Count,
    Events,
    Rate,
    Waits,
    parse_rate,
)

from . import candidates
from .connection import ServerOptions
from .options import Decorator, Parsed, command, create_option, json_option, server_options
from .output import note, print_fields, print_json

T = TypeVar("T", str, int)

FIELDS = {
    "rate": "rate",
    "concurrency": "concurrency",
    "concurrency_per_key": "per key",
    "events": "events",
    "max_retries": "max retries",
    "backoff": "backoff",
    "max_dead": "max dead",
}
"""The labels of a Configuration's fields."""

DEFAULT = "default"  # --events without a number


def _field(name: str, kind: click.ParamType[Any], metavar: str, text: str, **settings: Any) -> Decorator:
    """--NAME, and --no-NAME to remove it."""
    as_argument = name.replace("-", "_")
    given: Decorator = click.option(f"--{name}", as_argument, type=kind, metavar=metavar, help=text, **settings)
    removed: Decorator = click.option(f"--no-{name}", f"no_{as_argument}", is_flag=True, help="Remove this setting.")
    return lambda function: given(removed(function))


def _rate(text: str) -> str:
    parse_rate(text)
    return text


def _backoff(text: str) -> str:
    backoffs.parse(text)
    return text


def _count(name: str, least: int = 1, most: int = MOST_AT_ONCE) -> Parsed:
    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text[:9]) <= most:
            raise InvalidInput(
                f"{text!r} is not a whole number from {least} to {most}: --no-{name} removes the setting"
            )
        return int(text)

    return Parsed("count", parse)


def _entries(text: str) -> int | bool:
    if text == DEFAULT:
        return True
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_EVENTS:
        raise InvalidInput(f"{text!r} is not a whole number from 1 to {MOST_EVENTS}: put QUEUE before --events")
    return int(text)


@command(
    """
    delayq configure emails --rate 100/s --concurrency 20
    delayq configure emails --max-retries 8 --backoff exponential:base=10s
    delayq configure emails --events
    delayq configure emails
    """,
    "Set a queue's limits, retries and ledger, or show them.",
)
@click.argument("name", metavar="QUEUE", shell_complete=candidates.queues)
@server_options
@_field(
    "rate",
    Parsed("rate", _rate),
    "N/TIME",
    "Deliver at most this many messages per period: 100/s, 5/10s, 20/100ms, 9/min.",
)
@_field("concurrency", _count("concurrency"), "N", "Run at most this many messages at a time.")
@_field("per-key", _count("per-key"), "N", "Run at most this many messages per key at a time.")
@_field(
    "events",
    Parsed("entries", _entries),
    "[N]",
    "Keep a ledger: one entry for each step of a message, at most N entries. Default N: 100000.",
    is_flag=False,
    flag_value=DEFAULT,
)
@_field(
    "max-retries",
    _count("max-retries", 0, MAX_RETRIES),
    "N",
    "Deliveries after the first one, for messages sent without --max-retries.",
)
@_field(
    "backoff",
    Parsed("backoff", _backoff),
    "TEXT",
    "The waits before retries: fixed:10s, linear:base=1s,step=5s,maximum=1h, "
    "exponential:base=10s,factor=3,maximum=1h,jitter=0.1 or sequence:1s,10s,1m.",
)
@_field("max-dead", _count("max-dead"), "N", "Keep at most N dead letters; the oldest are purged.")
@create_option
@json_option
def configure(
    server: ServerOptions,
    name: str,
    rate: str | None,
    no_rate: bool,
    concurrency: int | None,
    no_concurrency: bool,
    per_key: int | None,
    no_per_key: bool,
    events: int | None,
    no_events: bool,
    max_retries: int | None,
    no_max_retries: bool,
    backoff: str | None,
    no_backoff: bool,
    max_dead: int | None,
    no_max_dead: bool,
    create: bool,
    as_json: bool,
) -> None:
    """Change the settings of QUEUE for all programs that use it, and show them. Without options, only show them.

    Settings that you do not give stay as they are. Running programs use new retries or a new backoff within a minute;
    these override what a program passes to Queue(…).
    """
    new_rate: Rate = _chosen(rate, no_rate, "rate")
    counts: list[Count] = [
        _chosen(concurrency, no_concurrency, "concurrency"),
        _chosen(per_key, no_per_key, "per-key"),
    ]
    kept: Events = _chosen(events, no_events, "events")
    retries: Count = _chosen(max_retries, no_max_retries, "max-retries")
    waits: Waits = _chosen(backoff, no_backoff, "backoff")
    dead: Count = _chosen(max_dead, no_max_dead, "max-dead")
    queue = server.queue(name)
    if not all(each is UNSET for each in (new_rate, *counts, kept, retries, waits, dead)):
        server.note_slip(name, create)
        queue.configure(
            rate=new_rate,
            concurrency=counts[0],
            concurrency_per_key=counts[1],
            events=kept,
            max_retries=retries,
            backoff=waits,
            max_dead=dead,
        )
    found = queue.configuration()
    if as_json:
        print_json(msgspec.to_builtins(found))
    elif rows := fields_of(found):
        print_fields(rows)
    else:
        note(f"nothing is configured for queue {queue.name}")


def fields_of(found: Configuration) -> list[tuple[str, object]]:
    """Return the settings as text."""
    shown = ((name, getattr(found, field)) for field, name in FIELDS.items())
    return [(name, value) for name, value in shown if value is not None]


def _chosen(value: T | None, removed: bool, name: str) -> T | UnsetType | None:
    if removed and value is not None:
        raise click.UsageError(f"give either --{name} or --no-{name}, not both")
    return None if removed else UNSET if value is None else value
