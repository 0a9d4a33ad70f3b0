"""``delayq pipeline redrive``: requeue the dead letters that match a condition."""

from __future__ import annotations

import click
import msgspec

from delayq.model.show import plural
from delayq.spark.jobs import redrive as job

from .. import candidates
from ..connection import ServerOptions
from ..options import RATE, command, delay_option
from ..output import note, print_json, say
from ..targets import load_function
from .spark_session import OpenSession, job_options, redis_of, watched


@command(
    """
    delayq pipeline redrive emails --where "error LIKE '%timeout%'" --dry-run
    delayq pipeline redrive emails --where "attempts > 3" --rate 100/s
    """,
    "Requeue dead letters that match a condition in SQL.",
)
@click.argument("name", metavar="QUEUE", shell_complete=candidates.queues)
@click.option(
    "--where", metavar="SQL", help="Which dead letters: a condition on the columns id, error, reason, attempts, …"
)
@click.option(
    "--edit", "target", metavar="MODULE:FUNCTION", help="Change each dead letter first: dict -> dict or None."
)
@delay_option
@click.option("--rate", type=RATE, metavar="RATE", help="At most this rate: 100, 100/s, 5/10s, 30/min.")
@click.option("--dry-run", is_flag=True, help="Change nothing; count the dead letters by error.")
@job_options
def redrive(
    name: str,
    where: str | None,
    target: str | None,
    delay: float | None,
    rate: float | None,
    dry_run: bool,
    as_json: bool,
    server: ServerOptions,
    open_session: OpenSession,
) -> int:
    """Requeue the dead letters of QUEUE: all, or those that match a condition.

    A dead letter is requeued only if it has not changed since it was read. --edit calls a function with the columns of
    a dead letter; it returns a new payload, headers or both, or None to keep them. If it raises, the message stays dead
    and the exit code is 1. To continue an interrupted run, run it again.
    """
    edit = None if target is None else load_function(target)
    spark, at = open_session(), redis_of(server)
    if dry_run:
        with watched(spark, f"reading {name}"):
            total, errors = job.count_errors(job.dead_letters(spark, at, name, where))
        _tell_errors(total, errors, as_json)
        return 0
    with watched(spark, f"redriving {name}"):
        summary = job.redrive(spark, at, name, where, edit, delay or 0, rate)
    if as_json:
        print_json({"queue": name, "chosen": summary.chosen} | msgspec.structs.asdict(summary))
    else:
        _tell(name, summary)
    return 1 if summary.failed else 0


def _tell(name: str, summary: job.RedriveSummary) -> None:
    say(f"requeued {summary.sent:,} of {plural(summary.chosen, 'matching dead letter')} of {name}")
    if summary.gone:
        note(f"not requeued: {summary.gone:,}, not dead or without a payload")
    if summary.failed:
        note(f"not requeued: {summary.failed:,}, because the edit failed:")
    for reason, count in summary.reasons.items():
        note(f"  {count:,} × {reason}")


def _tell_errors(total: int, errors: dict[str, int], as_json: bool) -> None:
    if as_json:
        print_json({"chosen": total, "errors": errors})
        return
    say(f"would requeue {plural(total, 'dead letter')}")
    for error, count in errors.items():
        say(f"  {count:,} × {error or 'no error'}")
