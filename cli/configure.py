"""configure: the settings of a queue that are stored in Redis and hold for all programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import click
import msgspec

from delayq.errors import InvalidInput
from delayq.model.configuration import Configuration
from delayq.model.settings import SETTINGS, NumberSetting, Setting

from . import candidates
from .connection import ServerOptions
from .options import Decorator, Parsed, added, command, create_option, json_option, server_options
from .output import note, print_fields, print_json

EVENTS = SETTINGS["events"]
DEFAULT = "default"  # --events without a number


def _options(setting: Setting) -> Decorator:
    """--NAME and --no-NAME for a setting."""
    flag: dict[str, Any] = {"is_flag": False, "flag_value": DEFAULT} if setting is EVENTS else {}
    kind, name = Parsed(setting.metavar.lower(), partial(_parsed, setting)), _option(setting)
    return added(
        click.option(f"--{name}", setting.name, type=kind, metavar=setting.metavar, help=setting.help, **flag),
        click.option(f"--no-{name}", f"no_{setting.name}", is_flag=True, help="Remove this setting."),
    )


def _option(setting: Setting) -> str:
    return setting.label.replace(" ", "-")


def _parsed(setting: Setting, text: str) -> Any:
    if setting is EVENTS and text == DEFAULT:
        return True
    try:
        return setting.parse(text)
    except InvalidInput as error:
        if not isinstance(setting, NumberSetting):
            raise
        remedy = "put QUEUE before --events" if setting is EVENTS else f"--no-{_option(setting)} removes the setting"
        raise InvalidInput(f"{error}: {remedy}") from error


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
@added(*map(_options, SETTINGS.values()))
@create_option
@json_option
def configure(server: ServerOptions, name: str, create: bool, as_json: bool, **given: Any) -> None:
    """Change the settings of QUEUE for all programs that use it, and show them. Without options, only show them.

    Settings that you do not give are not changed. Running programs use new retries or a new backoff within a minute.
    These two settings override what a program passes to Queue(…).
    """
    changes = dict(_changes(given))
    queue = server.queue(name)
    if changes:
        server.note_slip(name, create)
        queue.configure(**changes)
    found = queue.configuration()
    if as_json:
        print_json(msgspec.to_builtins(found))
    elif any(value is not None for _, value in fields_of(found)):
        print_fields(fields_of(found))
    else:
        note(f"nothing is configured for queue {queue.name}")


def fields_of(found: Configuration) -> list[tuple[str, object]]:
    """Return the settings, None for those that are not set."""
    return [(each.label, getattr(found, each.name)) for each in SETTINGS.values()]


def _changes(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, setting in SETTINGS.items():
        value, removed = given[name], given[f"no_{name}"]
        if removed and value is not None:
            raise click.UsageError(f"give either --{_option(setting)} or --no-{_option(setting)}, not both")
        if removed or value is not None:
            yield name, value
