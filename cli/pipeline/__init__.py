"""``delayq pipeline``: the jobs that run on Spark, each in a module of its own."""

from __future__ import annotations

import importlib

import click

from delayq.errors import InvalidInput

from ..options import example

JOBS: dict[str, str] = {
    name: name for name in ("schedule", "defer", "hydrate", "archive", "report", "drain", "restore", "redrive")
}
"""Jobs, in the order of the help, each with the module that has a command of its name."""


class Jobs(click.Group):
    """Imports a job when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's
        if cmd_name not in JOBS:
            return None
        try:
            module = importlib.import_module(f".{JOBS[cmd_name]}", __package__)
        except ImportError as error:
            if error.name is None or error.name.partition(".")[0] not in {"pyspark", "pyarrow"}:
                raise
            raise InvalidInput(f"the pipeline needs {error.name}: pip install 'delayq[spark]'") from error
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(
    cls=Jobs, short_help="Jobs on Spark: archive, report, schedule, …", epilog=example("delayq pipeline --help")
)
def pipeline() -> None:
    """Work on whole queues, and on tables, with Spark.

    Each job runs on this machine, or on a cluster with --master.
    """
