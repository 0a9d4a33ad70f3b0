"""``delayq pipeline schedule``: a table becomes messages."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from delayq.spark.jobs import schedule as job
from delayq.spark.server import Server as SparkServer
from delayq.spark.writing.rows import FORMATS
from delayq.spark.writing.sink import DAY
from delayq.times import show_moment

from .. import candidates
from ..options import DURATION, PAIR, command, delay_option, json_option, server_options
from ..output import note, plural, print_json, print_table, say
from ..server import Server
from .running import OpenSession, spark_options, watched

BAR = 40  # characters


@command(
    """
    echo '{"to": "a@example.org", "t": 1798761600}' > reminders.jsonl
    delayq pipeline schedule emails reminders.jsonl --map 'payload=struct(to)' --map 'due_at=timestamp_seconds(t)'
    """,
    "Send each row of a table as a message.",
)
@click.argument("name", metavar="QUEUE", shell_complete=candidates.queues)
@click.argument("table")
@click.option(
    "--map",
    "columns",
    multiple=True,
    type=PAIR,
    metavar="COLUMN=SQL",
    help="What payload, due_at, delay, id, headers, max_retries or expires_at is, in Spark SQL; repeatable. "
    "Default: the table's columns of these names.",
)
@delay_option
@click.option(
    "--format", "table_format", metavar="NAME", help="parquet, csv, json or table. Default: by the name's end."
)
@click.option(
    "--option", "options", multiple=True, type=PAIR, metavar="KEY=VALUE", help="Of the format: header=true; repeatable."
)
@click.option(
    "--payload-format", type=click.Choice(FORMATS), default="text", show_default=True, help="What a string payload is."
)
@click.option(
    "--unique-for", type=DURATION, default=DAY, metavar="TIME", help="How long a sent id stays taken. Default: 1d."
)
@click.option("--run", metavar="NAME", help="Name this work: done again under its name, no row is sent twice.")
@click.option("--rejects", metavar="FOLDER", help="Put rows that cannot be sent there, with the reasons, and go on.")
@click.option("--dry-run", is_flag=True, help="Change nothing, and tell what would be sent.")
@json_option
@spark_options
@server_options
def schedule(
    name: str,
    table: str,
    columns: tuple[tuple[str, str], ...],
    dry_run: bool,
    as_json: bool,
    unique_for: float,
    run: str | None,
    rejects: str | None,
    server: Server,
    open_session: OpenSession,
    **source: Any,
) -> None:
    """Send each row of TABLE to QUEUE.

    TABLE is a file or folder of Parquet, CSV or JSON lines, or a table that Spark knows by its name. An id that exists,
    or was sent within --unique-for, is left as it is: so a job that was interrupted may be run again. Rows without an
    id have one made for them, which is the same only under the same --run.
    """
    source["options"] = dict(source["options"])
    spark, to = open_session(), SparkServer(server.url, server.prefix)
    if dry_run:
        with watched(spark, f"looking at {table}"):
            found = job.preview(spark, table, to, name, dict(columns), **source)
        _tell_preview(found, as_json)
        return
    with watched(spark, f"sending {table}"):
        sent = job.schedule(
            spark, table, to, name, dict(columns), unique_for=unique_for, run=run, rejects=rejects, **source
        )
    if as_json:
        print_json({"queue": name, "table": table} | msgspec.structs.asdict(sent))
        return
    say(f"sent {plural(sent.sent, 'message')} from {table} to {name}")
    if sent.existing:
        note(f"left {plural(sent.existing, 'row')} whose id existed, or was sent before")
    if sent.rejected:
        note(f"put aside {plural(sent.rejected, 'row')} that cannot be sent: see {rejects}")


def _tell_preview(found: job.Preview, as_json: bool) -> None:
    if as_json:
        hours = {at.isoformat(): count for at, count in found.hours.items()}
        print_json(msgspec.structs.asdict(found) | {"hours": hours})
        return
    say(f"would send {plural(found.sendable, 'message')}; cannot send {found.refused:,}")
    for reason, count in found.reasons.items():
        say(f"  {count:,} × {reason}")
    if found.earliest is not None and found.latest is not None:
        say(f"due from {show_moment(found.earliest)} to {show_moment(found.latest)}")
        most = max(found.hours.values())
        rows = [(f"{at:%Y-%m-%d %H:00}", count, "█" * round(BAR * count / most)) for at, count in found.hours.items()]
        print_table(["hour (UTC)", "#messages", ""], rows)
