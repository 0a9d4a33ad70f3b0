"""configure: what is stored of a queue, and holds for all that serve it."""

from __future__ import annotations

from typing import Any, TypeVar

import click
import msgspec
from msgspec import UNSET, UnsetType

from delayq.errors import InvalidInput
from delayq.limits import MOST_AT_ONCE, Configuration, Count, Rate, parse_rate

from . import candidates
from .options import Decorator, Parsed, command, json_option, server_options
from .output import note, print_fields, print_json
from .server import Server

T = TypeVar("T", str, int)

LIMITS = {"rate": "rate", "concurrency": "concurrency", "concurrency_per_key": "per key"}
"""Fields of a Configuration, as they are shown."""


def _limit(name: str, kind: click.ParamType[Any], metavar: str, text: str) -> Decorator:
    """--NAME, and --no-NAME to remove it."""
    as_argument = name.replace("-", "_")
    given: Decorator = click.option(f"--{name}", as_argument, type=kind, metavar=metavar, help=text)
    removed: Decorator = click.option(f"--no-{name}", f"no_{as_argument}", is_flag=True, help="Remove it.")
    return lambda function: given(removed(function))


def _rate(text: str) -> str:
    parse_rate(text)
    return text


def _count(name: str) -> Parsed:
    def parse(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_AT_ONCE:
            raise InvalidInput(
                f"{text!r} is not a whole number from 1 to {MOST_AT_ONCE}; --no-{name} removes the limit"
            )
        return int(text)

    return Parsed("count", parse)


@command(
    """
    delayq configure emails --rate 100/s --concurrency 20
    delayq configure emails
    """,
    "Limit a queue, or show its limits.",
)
@click.argument("name", metavar="QUEUE", shell_complete=candidates.queues)
@server_options
@_limit(
    "rate",
    Parsed("rate", _rate),
    "N/TIME",
    "The most hand-outs in any such time: 100/s, 5/10s, 20/100ms, 9/min.",
)
@_limit("concurrency", _count("concurrency"), "N", "Hand out no more while so many are being handled.")
@_limit("per-key", _count("per-key"), "N", "Likewise, of those that share a key.")
@json_option
def configure(
    server: Server,
    name: str,
    rate: str | None,
    no_rate: bool,
    concurrency: int | None,
    no_concurrency: bool,
    per_key: int | None,
    no_per_key: bool,
    as_json: bool,
) -> None:
    """Limit QUEUE for all that serve it, now and later, and show its limits; without options, only show them.

    A limit that is not named stays as it is.
    """
    new_rate: Rate = _chosen(rate, no_rate, "rate")
    counts: list[Count] = [
        _chosen(concurrency, no_concurrency, "concurrency"),
        _chosen(per_key, no_per_key, "per-key"),
    ]
    queue = server.queue(name)
    if not all(each is UNSET for each in (new_rate, *counts)):
        queue.configure(rate=new_rate, concurrency=counts[0], concurrency_per_key=counts[1])
    found = queue.configuration()
    if as_json:
        print_json(msgspec.to_builtins(found))
    elif rows := limit_fields(found):
        print_fields(rows)
    else:
        note(f"queue {queue.name} has no limits")


def limit_fields(found: Configuration) -> list[tuple[str, object]]:
    """Return the limits that are set, to be shown."""
    shown = ((name, getattr(found, field)) for field, name in LIMITS.items())
    return [(name, value) for name, value in shown if value is not None]


def _chosen(value: T | None, removed: bool, name: str) -> T | UnsetType | None:
    if removed and value is not None:
        raise click.UsageError(f"--{name} and --no-{name} were given: give one of them")
    return None if removed else UNSET if value is None else value
