"""lake hydrate: move messages from a lake into Redis before they are due, in this process."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import msgspec

from delayq import signals
from delayq.errors import KeyOverwritten, LakeMismatch, LoginRefused, QueueMismatch, ServerError, StoreError
from delayq.lake.shown_path import shown
from delayq.log import log
from delayq.model.outage import Outage
from delayq.model.show import plural, show_duration

from .. import candidates
from ..connection import ServerOptions
from ..options import DURATION, command_group, json_option, server_options
from ..output import print_json, say
from . import options

if TYPE_CHECKING:
    from delayq.lake.hydrate import HourLoaded

REFUSED_SECONDS = 60.0  # until the next attempt after a refusal: the right may be granted before the next run is due


@command_group(
    "mkdir -p lake\ndelayq lake hydrate --lake lake --horizon 2h", "A lake: far-future messages, outside Redis."
)
def lake() -> None:
    """Move messages from a lake into Redis before they are due, and repair a lake."""


@lake.command(
    "mkdir -p lake\ndelayq lake hydrate --lake lake --horizon 2h",
    "Move messages that fall due soon from a lake into Redis.",
)
@options.hydrate_options
@click.option("--every", type=DURATION, metavar="TIME", help="Repeat at this interval, such as 15m.")
@server_options
@json_option
def hydrate(
    server: ServerOptions,
    name: str | None,
    lake: str,
    horizon: float,
    until: dt.datetime | None,
    keep: float | None,
    every: float | None,
    as_json: bool,
) -> None:
    """Move messages that fall due within the horizon from a lake into Redis: those of QUEUE, or of all queues.

    Each message is moved once. If a run is killed, the next one completes it. Exit code 1 if a file is gone or was
    changed, 2 if the server refuses a queue; all others are loaded.

    With --every, repeat this until SIGTERM or Ctrl-C, and then finish the current run. The command waits for an
    unavailable server, logs any other error, and continues.
    """
    if every is not None and until is not None:
        raise click.UsageError("--every needs --horizon: with --until, the hours are loaded once")
    if every is not None and not 0 < every < horizon:
        raise click.UsageError(
            f"--every {show_duration(every)} must be shorter than --horizon {show_duration(horizon)}, or messages "
            "would be late"
        )
    options.check(lake, name)

    def run() -> None:
        files = _hydrate(server, name, lake, horizon, until, keep)
        if files or as_json or every is None:
            options.tell_loaded([_row(each) for each in files], as_json)

    if every is None:
        run()
    else:
        _run_every(every, run)


@lake.command(
    "mkdir -p lake\ndelayq lake repair emails --lake lake",
    "Move damaged files of a lake aside.",
)
@click.argument("name", metavar="QUEUE", shell_complete=candidates.queues)
@click.option("--lake", required=True, metavar="PATH", help="A folder, or a URI such as s3://bucket/folder.")
@json_option
def repair(name: str, lake: str, as_json: bool) -> None:
    """Move files that cannot be read out of the way, so that QUEUE works without their messages.

    All files are read in full. Damaged ones are moved to the folder _damaged of the queue. To get their messages back,
    put copies from a backup where they were, or repeat the run of delayq pipeline defer that wrote them.
    """
    options.check(lake, name)
    from delayq.lake.queue_folder import QueueFolder  # noqa: PLC0415  # needs pyarrow; `options.check` has checked

    found = QueueFolder(lake, name).set_aside()
    if as_json:
        files = [{"hour": each.hour, "file": each.file.name, "rows": each.file.rows} for each in found]
        print_json({"queue": name, "lake": shown(lake), "damaged": files})
        return
    for each in found:
        say(f"moved {each.hour}/{each.file.name} aside, which held {plural(each.file.rows, 'message')}")
    if not found:
        say(f"no file of {name} is damaged")


def _hydrate(
    server: ServerOptions, name: str | None, lake: str, horizon: float, until: dt.datetime | None, keep: float | None
) -> list[HourLoaded]:
    from delayq.lake import hydrate as of_lake  # noqa: PLC0415  # needs pyarrow; `options.check` has checked

    def hydrate(each: str) -> list[HourLoaded]:
        stays = of_lake.KEEP if keep is None else keep
        return of_lake.hydrate(server.queue(each), lake, horizon, until=until, keep=stays)

    return of_lake.hydrate_each([name] if name is not None else options.queues(lake), hydrate)


def _row(loaded: HourLoaded) -> dict[str, object]:
    file = msgspec.structs.asdict(loaded.file)
    return {"queue": loaded.queue, "hour": loaded.hour, "file": file["file"]} | {
        each: file[each] for each in options.COUNTS
    }


def _run_every(seconds: float, run: Callable[[], None]) -> None:
    """Repeat the run at an interval, from start to start, until a signal."""
    outage, text = Outage(), "lake partly loaded"
    with signals.stopping() as stop:
        while not stop.is_set():
            begun = time.monotonic()
            try:
                run()
                outage.served()
            except LoginRefused as error:
                log.error(text, error=str(error))
                stop.wait(min(seconds, REFUSED_SECONDS))
                continue
            except (LakeMismatch, KeyOverwritten, QueueMismatch) as error:
                outage.served()
                log.error(text, error=str(error))
            except (ServerError, StoreError) as error:
                stop.wait(outage.lost(error))
                continue
            except OSError as error:
                log.error(text, error=str(error))
            stop.wait(begun + seconds - time.monotonic())
