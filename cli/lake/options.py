"""Options and functions of the commands that use a lake, if pyarrow is installed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from delayq.errors import InvalidInput
from delayq.lake.shown_path import shown
from delayq.model.extras import install
from delayq.model.show import plural
from delayq.queue import Queue

from .. import candidates
from ..connection import ServerOptions
from ..options import DURATION, MOMENT, Decorator, Function, server_options
from ..output import note, print_json, say

if TYPE_CHECKING:
    from delayq.doctor import Report, Step

DAY = 86_400.0
COUNTS = ("rows", "sent", "existing", "cancelled", "void", "held")


def queue_argument(function: Function) -> Function:
    """QUEUE, the server's options and --lake; the function gets the `Queue` with this lake as `queue`."""

    @click.argument("name", metavar="QUEUE", shell_complete=candidates.queues)
    @lake_option
    @server_options
    @functools.wraps(function)
    def with_queue(
        *args: Any, server: ServerOptions, name: str, lake: str | None, horizon: float | None = None, **kwargs: Any
    ) -> Any:
        return function(*args, queue=queue_of(server, name, lake, horizon), **kwargs)

    return with_queue


def queue_of(server: ServerOptions, name: str, lake: str | None, horizon: float | None = None) -> Queue:
    """Return a queue that also looks in the lake, if one was given."""
    if lake is None:
        if horizon is not None:
            raise click.UsageError("--horizon needs --lake")
        return server.queue(name)
    check(lake, name)
    return server.queue(name, lake=lake, horizon=DAY if horizon is None else horizon)


lake_option: Decorator = click.option("--lake", metavar="PATH", help="Also look in this lake of far-future messages.")


horizon_option: Decorator = click.option(
    "--horizon",
    type=DURATION,
    metavar="TIME",
    help="With --lake: messages due later than this stay there. Must be longer than the time between two loads. "
    "Default: 1d.",
)
"""For a command that moves messages; put it below `queue_argument`."""


def hydrate_options(function: Function) -> Function:
    """[QUEUE], --lake, --horizon or --until, and --keep: the options of the two commands that hydrate."""

    @click.argument("name", metavar="[QUEUE]", required=False, shell_complete=candidates.queues)
    @click.option("--lake", required=True, metavar="PATH", help="A folder, or a URI such as s3://bucket/folder.")
    @click.option(
        "--horizon",
        type=DURATION,
        metavar="TIME",
        help="How far ahead; must be longer than the time between two runs. Give this or --until.",
    )
    @click.option("--until", type=MOMENT, metavar="ISO8601", help="Load the hours that begin by this time instead.")
    @click.option(
        "--keep", type=DURATION, metavar="TIME", help="Remove files this long after their hour. Default: 30d."
    )
    @functools.wraps(function)
    def checked(*args: Any, horizon: float | None, until: Any, **kwargs: Any) -> Any:
        if (horizon is None) == (until is None):
            raise click.UsageError("give either --horizon or --until")
        return function(*args, horizon=horizon or 0.0, until=until, **kwargs)

    return checked


def tell_loaded(files: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print what became of the messages in the loaded files."""
    totals = {name: sum(file[name] for file in files) for name in COUNTS}
    if as_json:
        print_json({"files": files} | totals)
        return
    others = ", ".join(f"{totals[name]} {name}" for name in COUNTS[2:] if totals[name])
    loaded = f"{plural(totals['sent'], 'message')} loaded from {plural(len(files), 'file')}"
    say(f"{loaded}; {others}" if others else loaded)


def check(lake: str, queue: str | None = None) -> list[str]:
    """Refuse a lake that does not exist, or return the names of its queues; it is empty if nothing was sent to it yet.

    A queue that is not in the lake may not have deferred anything yet: print a note to stderr.
    """
    queue_folder, _ = _modules()
    if not queue_folder.exists(lake):
        raise InvalidInput(
            f"the lake {shown(lake)!r} does not exist: give the `lake` of your queues, or the --lake of delayq "
            "pipeline defer; create the folder if neither has used it yet"
        )
    known = queues(lake)
    if queue is not None and queue not in known:
        note(f"the lake {shown(lake)} holds nothing of queue {queue}; it has {', '.join(known) or 'no queues'}")
    return known


def queues(lake: str) -> list[str]:
    """Return the sorted names of the queues in a lake."""
    queue_folder, _ = _modules()
    names: list[str] = queue_folder.queues(lake)
    return names


def examine(queue: Queue, lake: str, report: Report, on_step: Callable[[Step], None]) -> None:
    """Examine the lake of a queue, and add the findings to the queue's report."""
    _, doctor = _modules()
    found = doctor.examine(queue, lake, on_step)
    report.messages += found.messages
    report.findings += found.findings


def _modules() -> tuple[Any, Any]:
    try:
        from delayq.lake import doctor, queue_folder  # noqa: PLC0415  # without a lake, no command needs pyarrow
    except ModuleNotFoundError as error:
        raise InvalidInput(f"a lake needs {error.name}: {install('lake')}") from error
    return queue_folder, doctor
