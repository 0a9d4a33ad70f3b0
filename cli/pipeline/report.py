"""pipeline report: report what queues have done, as figures and as a page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from contextlib import nullcontext

import click
from pyspark.sql import DataFrame, SparkSession

from delayq import signals
from delayq.lake.shown_path import shown
from delayq.spark import redis_options
from delayq.spark.archiving.gaps import Loss
from delayq.spark.errors import translated
from delayq.spark.jobs import report as job
from delayq.spark.jobs.archive import events

from .. import candidates
from ..connection import ServerOptions
from ..options import MOMENT, command
from ..output import note, print_json, print_table, say
from . import EXAMPLE
from .archive_folder import check_archive
from .spark_session import OpenSession, job_options, redis_of, watched

COLUMNS = ("sent", "delivered", "acked", "retried", "died")


@command(EXAMPLE, "Report what queues have done: figures and an HTML page.")
@click.argument("queues", metavar="[QUEUE]...", nargs=-1, shell_complete=candidates.queues)
@click.option("--archive", "source", metavar="FOLDER", help="Read this archive, not the ledgers in Redis.")
@click.option("--to", "path", required=True, metavar="FOLDER", help="The folder for report.html and figures/*.parquet.")
@click.option("--since", type=MOMENT, metavar="ISO8601", help="Only events from this time on; include the time zone.")
@click.option("--until", type=MOMENT, metavar="ISO8601", help="Only events before this time; include the time zone.")
@click.option("--follow", is_flag=True, help="Update the report every minute until SIGTERM or Ctrl-C.")
@click.option(
    "--skip-lost", is_flag=True,
    help="With --follow: continue if a ledger has dropped entries that were not counted yet; the gap is printed and "
    "recorded in FOLDER/lost.",
)  # fmt: skip
@job_options
def report(
    queues: Sequence[str], source: str | None, path: str, since: dt.datetime | None, until: dt.datetime | None,
    follow: bool, skip_lost: bool, server: ServerOptions, open_session: OpenSession, as_json: bool,
) -> None:  # fmt: skip
    """Report per minute what was sent, delivered, acked, retried and died, with lateness, handler times and causes.

    Open FOLDER/report.html in a browser; it needs no network. FOLDER/figures has the same data as Parquet. With
    --follow, the command fails if a ledger has dropped entries that were not counted yet; with --skip-lost, it
    continues without them.
    """
    if not queues and source is None:
        raise click.UsageError("give queues, or --archive for all queues in an archive")
    if follow and (source or since or until):
        raise click.UsageError("--follow takes only queues, because it reads their ledgers in Redis from the start")
    if skip_lost and not follow:
        raise click.UsageError("--skip-lost needs --follow: otherwise, the report counts what the ledgers have")
    if source is not None:
        check_archive(source, queues)
    where = redis_of(server)
    spark = open_session()
    # A single report does not catch signals, since nothing would check for them until it is done.
    with (
        signals.stopping() if follow else nullcontext() as stop,
        watched(spark, f"reporting to {shown(path)}"),
        translated(),
    ):
        if follow:
            figures = job.follow(spark, where, queues, path, stop=stop, skip_lost=skip_lost, tell_loss=_tell_loss)
        else:
            figures = job.report(spark, _events(spark, where, source, queues), since=since, until=until)
            job.save(figures, path)
        rows = [row.asDict() for row in figures.queues.select("queue", *COLUMNS).collect()]
    _print(rows, path, as_json)


def _tell_loss(loss: Loss) -> None:
    note(f"the report of {loss.queue} lacks {loss}")


def _events(
    spark: SparkSession, server: redis_options.RedisOptions, source: str | None, queues: Sequence[str]
) -> DataFrame:
    return job.ledgers(spark, server, queues) if source is None else events(spark, source, queues or None)


def _print(rows: Sequence[dict[str, object]], path: str, as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_json(row)
        return
    if rows:
        print_table(["queue", *(f"#{name}" for name in COLUMNS)], [list(row.values()) for row in rows])
    say(f"see {shown(path)}/report.html")
