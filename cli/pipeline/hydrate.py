"""pipeline hydrate: what rests in a lake is brought into Redis before it is due."""

from __future__ import annotations

import datetime as dt
from typing import Any

import click

from delayq.lake.hydrate import KEEP
from delayq.spark.jobs import hydrate as job
from delayq.spark.redis_options import RedisOptions

from .. import lakes
from ..connection import ServerOptions
from ..options import DURATION, MOMENT, command, json_option, server_options
from ..output import plural, print_json, say
from .spark_session import OpenSession, spark_options, watched

COUNTS = ("rows", "sent", "existing", "cancelled", "void", "held")


@command(
    """
    delayq pipeline hydrate --lake lake --horizon 2h
    """,
    "Bring what falls due soon from a lake into Redis.",
)
@click.argument("queue", metavar="[QUEUE]", required=False)
@click.option("--lake", required=True, metavar="PATH", help="A folder, or a URI such as s3://bucket/folder.")
@click.option(
    "--horizon",
    type=DURATION,
    metavar="TIME",
    help="How far ahead; more than the time between two runs. This, or --until.",
)
@click.option("--until", type=MOMENT, metavar="ISO8601", help="Load the hours that begin by then, instead.")
@click.option("--keep", type=DURATION, metavar="TIME", help="Remove files so long after their hour. Default: 30d.")
@spark_options
@server_options
@json_option
def hydrate(
    server: ServerOptions,
    queue: str | None,
    lake: str,
    horizon: float | None,
    until: dt.datetime | None,
    keep: float | None,
    open_session: OpenSession,
    as_json: bool,
) -> int:
    """Bring the messages of QUEUE, or all, that begin to fall due within the horizon from a lake into Redis, once each.

    To be run again and again. A run that broke off anywhere is completed by the next. Exit code 1 when a file is gone
    or was changed; all others are loaded.
    """
    if (horizon is None) == (until is None):
        raise click.UsageError("give --horizon or --until: one of these")
    lakes.check(lake, queue)
    spark = open_session()
    to = RedisOptions(server.url, server.prefix)
    with watched(spark, "hydrating"):
        files = job.hydrate(
            spark, lake, to, horizon or 0, queue, until=until, keep=KEEP if keep is None else keep
        ).collect()
    told = {name: sum(row[name] for row in files) for name in COUNTS}
    if as_json:
        print_json({"files": [row.asDict() for row in files]} | told)
    else:
        _tell(len(files), told)
    return 0


def _tell(files: int, told: dict[str, Any]) -> None:
    others = ", ".join(f"{told[name]} {name}" for name in COUNTS[2:] if told[name])
    say(f"{plural(told['sent'], 'message')} loaded from {plural(files, 'file')}{f'; {others}' if others else ''}")
