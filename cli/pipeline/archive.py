"""pipeline archive: archive the ledgers of queues as Parquet."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from delayq import signals
from delayq.errors import InvalidInput
from delayq.lake.shown_path import shown
from delayq.model.show import plural
from delayq.spark.archiving.append_table import StoredBatch
from delayq.spark.archiving.compaction import Compacted, compact
from delayq.spark.archiving.gaps import Loss
from delayq.spark.jobs.archive import EVERY, MOST, tables_of
from delayq.spark.jobs.archive import archive as run

from .. import candidates
from ..connection import ServerOptions
from ..options import DURATION, command
from ..output import note, print_json, say
from ..progress import progress
from .archive_folder import check_archive
from .spark_session import OpenSession, job_options, redis_of, watched

EXAMPLE = """\
delayq configure emails --events
delayq send emails hello
delayq pipeline archive emails --to archive
"""


@command(EXAMPLE, "Archive the ledgers of queues as Parquet.")
@click.argument("queues", metavar="[QUEUE]...", nargs=-1, shell_complete=candidates.queues)
@click.option("--all", "everything", is_flag=True, help="All queues of the server that keep a ledger.")
@click.option("--to", "path", required=True, metavar="FOLDER", help="The archive: a folder, or a URI such as s3://….")
@click.option("--follow", is_flag=True, help="Continue with new entries until SIGTERM or Ctrl-C.")
@click.option("--every", type=DURATION, metavar="TIME", help="With --follow: time between batches. Default: 1m.")
@click.option("--batch", type=click.IntRange(1), default=MOST, metavar="N", help="Maximum entries per batch.")
@click.option(
    "--skip-lost", is_flag=True,
    help="Continue if the ledger has dropped entries that were not archived yet; the gap is printed and recorded in "
    "FOLDER/lost.",
)  # fmt: skip
@click.option("--compact", "compacts", is_flag=True, help="Merge small files afterwards; also works without QUEUE.")
@click.option(
    "--before",
    type=click.DateTime(["%Y-%m-%d"]),
    help="With --compact: only days before this one. Default: today, in UTC.",
)
@job_options
def archive(
    queues: Sequence[str], everything: bool, path: str, follow: bool, every: float | None, batch: int, skip_lost: bool,
    compacts: bool, before: dt.datetime | None, server: ServerOptions, open_session: OpenSession, as_json: bool,
) -> None:  # fmt: skip
    """Add the new entries of each QUEUE's ledger to a Parquet archive, once each.

    The archive is FOLDER/events/queue=…/date=…/*.parquet; any Parquet reader can read it. You can kill the command at
    any point; the next run continues from there. Without --follow, exit code 1 if it was stopped before it had archived
    all entries that existed at its start. If a ledger has dropped entries that were not archived yet, the command
    fails; with --skip-lost, it continues without them.
    """
    if (queues and everything) or not (queues or everything or compacts):
        raise click.UsageError("give either queues, or --all, or --compact alone")
    _check_together(compacts, follow, before, every)
    if skip_lost and not (queues or everything):
        raise click.UsageError("--skip-lost needs QUEUE or --all")
    names = _with_ledgers(server) if everything else queues
    if not names:
        check_archive(path)
    rows: Counter[str] = Counter(dict.fromkeys(names, 0))
    lost: list[Loss] = []
    way = {"most": batch, "follow": follow, "every": EVERY if every is None else every, "skip_lost": skip_lost}
    was_stopped = bool(names) and _archive(server, names, path, way, rows, lost, open_session)
    compacted = _compact(path, before) if compacts and not was_stopped else Compacted()
    if as_json:
        losses = [loss._asdict() for loss in lost]
        print_json({"archived": dict(rows), "lost": losses, "merged": compacted.files, "into": compacted.into})
    else:
        for name, count in rows.items():
            say(f"archived {plural(count, 'event')} of {name} to {shown(path)}")
        if compacts:
            say(f"merged {plural(compacted.files, 'file')} into {compacted.into}")
    if was_stopped and not follow:
        raise click.ClickException("stopped before all was archived: run it again to continue")


def _archive(
    server: ServerOptions, names: Sequence[str], path: str, way: dict[str, Any], rows: Counter[str], lost: list[Loss],
    open_session: OpenSession,
) -> bool:  # fmt: skip
    """Archive and count; return whether it was stopped."""

    def tell(stored: StoredBatch) -> None:
        rows[stored.queue] += stored.rows

    def tell_loss(loss: Loss) -> None:
        lost.append(loss)
        note(f"the archive of {loss.queue} lacks {loss}")

    spark = open_session()
    with signals.stopping() as stop, watched(spark, f"archiving to {shown(path)}"):
        source = redis_of(server)
        run(spark, source, names, path, **way, stop=stop, tell=tell, tell_loss=tell_loss)
    return stop.is_set()


def _check_together(compacts: bool, follow: bool, before: dt.datetime | None, every: float | None) -> None:
    if compacts and follow:
        raise click.UsageError("give either --compact or --follow, not both: compact in another process")
    if before is not None and not compacts:
        raise click.UsageError("--before needs --compact")
    if every is not None and not follow:
        raise click.UsageError("--every needs --follow")


def _with_ledgers(server: ServerOptions) -> Sequence[str]:
    names = [name for name in server.queue_names() if _keeps_ledger(server, name)]
    if not names:
        raise InvalidInput("no queue on this server keeps a ledger: start one with delayq configure QUEUE --events")
    return names


def _keeps_ledger(server: ServerOptions, name: str) -> bool:
    queue = server.queue(name)
    return queue.configuration().events is not None or bool(queue.events.length())


def _compact(path: str, before: dt.datetime | None) -> Compacted:
    total = Compacted()
    tables = tables_of(path)
    with progress(f"compacting {shown(path)}", len(tables)) as bar:
        for table in tables:
            done = compact(table, before and before.date())
            total = Compacted(*(a + b for a, b in zip(total, done, strict=True)))
            bar.advance(1)
    return total
