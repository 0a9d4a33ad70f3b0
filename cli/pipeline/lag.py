"""pipeline lag: show how far the query of a stream is behind, from its checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from delayq.lake.shown_path import shown
from delayq.spark.reading.lag import ShardLag
from delayq.spark.reading.lag import lag as find

from ..connection import ServerOptions
from ..options import command, json_option, server_options
from ..output import print_json, print_table, say
from .spark_session import redis_of, wait_option

COLUMNS = ("checkpoint", *ShardLag._fields)
METRIC = "delayq_stream_backlog"
_HELP = "Entries that the query with this checkpoint has not read yet."


@command(
    """
    delayq configure emails --events
    delayq send emails hello
    delayq pipeline archive emails --to archive
    delayq pipeline lag archive/_work/queue=emails/checkpoint
    """,
    "Show how far a stream's query is behind.",
)
@click.argument("checkpoints", metavar="CHECKPOINT...", nargs=-1, required=True)
@click.option("--metrics", is_flag=True, help=f"Print {METRIC} for Prometheus, for example for a textfile collector.")
@server_options
@wait_option
@json_option
def lag(checkpoints: Sequence[str], metrics: bool, server: ServerOptions, as_json: bool) -> None:
    """Show, for each shard, how many entries the query with this CHECKPOINT has not read yet, without Spark.

    CHECKPOINT is a folder or URI: the checkpointLocation of the query. Only batches that are complete count as read.
    The prefix of the keys is that of the checkpoint. `lost` says which entries were trimmed before they were read.
    """
    if metrics and as_json:
        raise click.UsageError("give either --metrics or --json")
    where = redis_of(server)
    rows = [(shown(checkpoint), each) for checkpoint in checkpoints for each in find(checkpoint, where)]
    if metrics:
        for line in _exposed(rows):
            say(line)
    elif as_json:
        for checkpoint, each in rows:
            print_json({"checkpoint": checkpoint} | each._asdict())
    else:
        titles = [f"#{name}" if name in ("shard", "backlog") else name for name in COLUMNS]
        print_table(titles, [[checkpoint, *each._replace(lost=each.lost or "")] for checkpoint, each in rows])


def _exposed(rows: Iterable[tuple[str, ShardLag]]) -> Iterable[str]:
    """Yield lines in the text format of Prometheus."""
    yield f"# HELP {METRIC} {_HELP}"
    yield f"# TYPE {METRIC} gauge"
    for checkpoint, each in rows:
        labels = {"checkpoint": checkpoint, "kind": each.kind, "name": each.name, "shard": str(each.shard)}
        written = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
        yield f"{METRIC}{{{written}}} {each.backlog}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
