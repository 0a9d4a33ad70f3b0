"""pipeline hydrate: move messages from a lake into Redis before they are due, with Spark."""

from __future__ import annotations

import datetime as dt

from delayq.lake.hydrate import KEEP
from delayq.spark.jobs import hydrate as job

from ..connection import ServerOptions
from ..lake import options as lakes
from ..options import command
from .spark_session import OpenSession, job_options, redis_of, watched


@command(
    """
    delayq pipeline hydrate --lake lake --horizon 2h
    """,
    "Move messages that fall due soon from a lake into Redis.",
)
@lakes.hydrate_options
@job_options
def hydrate(
    server: ServerOptions,
    name: str | None,
    lake: str,
    horizon: float,
    until: dt.datetime | None,
    keep: float | None,
    open_session: OpenSession,
    as_json: bool,
) -> None:
    """Move messages that fall due within the horizon from a lake into Redis: those of QUEUE, or of all queues.

    Each message is moved once. Run this regularly; each run completes an interrupted one. On one machine, delayq lake
    hydrate does the same without Spark. Exit code 1 if a file is gone or was changed; all others are loaded.
    """
    lakes.check(lake, name)
    spark = open_session()
    to = redis_of(server)
    with watched(spark, "hydrating"):
        files = job.hydrate(spark, lake, to, horizon, name, until=until, keep=KEEP if keep is None else keep).collect()
    lakes.tell_loaded([row.asDict() for row in files], as_json)
