"""``delayq pipeline``: the jobs that run on Spark, one per module."""

from __future__ import annotations

import importlib

import click
from click.shell_completion import CompletionItem

from delayq.errors import InvalidInput
from delayq.model.extras import install

from ..options import example

JOBS = {
    "schedule": "Send each row of a table as a message.",
    "defer": "Write a table of messages to a lake, outside Redis.",
    "hydrate": "Move messages that fall due soon from a lake into Redis.",
    "archive": "Archive the ledgers of queues as Parquet.",
    "lag": "Show how far a stream's query is behind.",
    "report": "Report what queues have done: figures and an HTML page.",
    "drain": "Write a whole queue to Parquet.",
    "restore": "Restore a drained queue.",
    "redrive": "Requeue dead letters that match a condition in SQL.",
}
"""The jobs in the order of the help, with their short help; each has a module and a command of its name."""


class Jobs(click.Group):
    """Imports a job only to run it or to show its help, so that listing all jobs does not need Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's
        if cmd_name not in JOBS:
            return None
        try:
            module = importlib.import_module(f".{cmd_name}", __package__)
        except ImportError as error:
            if error.name is None or error.name.partition(".")[0] not in {"pyspark", "pyarrow"}:
                raise
            raise InvalidInput(f"the pipeline needs {error.name}: {install('spark')}") from error
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's
        with formatter.section("Commands"):
            formatter.write_dl(list(JOBS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        jobs = [CompletionItem(name, help=short) for name, short in JOBS.items() if name.startswith(incomplete)]
        return jobs + click.Command.shell_complete(self, ctx, incomplete)


EXAMPLE = """\
delayq configure emails --events
delayq send emails hello
delayq pipeline report emails --to report
"""


@click.group(cls=Jobs, short_help="Jobs on Spark: archive, report, schedule, …", epilog=example(EXAMPLE))
def pipeline() -> None:
    """Process whole queues and tables with Spark.

    A job runs on this machine or, with --master, on a cluster.
    """
