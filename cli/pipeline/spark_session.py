"""What all jobs need: a Spark session and the progress."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from delayq.spark import session
from delayq.spark.redis_options import WAIT_FOR, RedisOptions
from delayq.spark.session import QUIET, VERBOSE, running

from ..connection import ServerOptions
from ..options import DURATION, PAIR, Decorator, Function, added, json_option, server_options
from ..progress import ProgressBar, progress

LOOK_SECONDS = 0.5
_WAIT = "delayq.wait_for"
TRACEBACKS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Spark's logger that writes the traceback of a mistake in SQL to stderr; the raised error already says it."""

OpenSession = Callable[[], SparkSession]


def spark_options(function: Function) -> Function:
    """--master, --conf and --verbose; the function gets `open_session`, which returns the Spark session."""

    @click.option("--master", metavar="URL", help="As for spark-submit. Default: all cores of this machine.")
    @click.option(
        "--conf", "settings", multiple=True, type=PAIR, metavar="KEY=VALUE", help="A Spark setting; repeatable."
    )
    @click.option("--verbose", is_flag=True, help="Show Spark's own log. For more: --conf spark.log.level=DEBUG.")
    @functools.wraps(function)
    def with_session(
        *args: Any, master: str | None, settings: tuple[tuple[str, str], ...], verbose: bool, **kwargs: Any
    ) -> Any:
        opened: list[SparkSession] = []
        found = running()  # if a program runs the command

        def open_session() -> SparkSession:
            if not opened:
                _silence(verbose)
                opened.append(session(master, (VERBOSE if verbose else QUIET) | dict(settings)))
            return opened[0]

        try:
            return function(*args, open_session=open_session, **kwargs)
        finally:
            for each in opened if found is None else ():
                each.stop()

    return with_session


def _note_wait(ctx: click.Context, _option: click.Parameter, seconds: float | None) -> None:
    ctx.meta[_WAIT] = WAIT_FOR if seconds is None else seconds


wait_option: Decorator = click.option(
    "--wait-for",
    type=DURATION,
    metavar="TIME",
    callback=_note_wait,
    expose_value=False,
    help="How long to wait, in each round trip, for a server that is unavailable. Default: 1m.",
)
job_options = added(spark_options, server_options, wait_option, json_option)
"""Those of a job that uses a server; see `redis_of`."""


def redis_of(server: ServerOptions) -> RedisOptions:
    """Return the server for a job, which waits for it as --wait-for says."""
    return RedisOptions(server.url, server.prefix, click.get_current_context().meta[_WAIT])


def _silence(verbose: bool) -> None:
    """Keep Spark's Python side from logging its calls to Java, and errors that are raised anyway."""
    logging.getLogger("py4j").setLevel(logging.WARNING if verbose else logging.CRITICAL)
    for name in TRACEBACKS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def watched(spark: SparkSession, label: str) -> Iterator[None]:
    """Show how many tasks of the running jobs are done on the terminal, until the block ends."""
    ended = threading.Event()
    with progress(label, None) as bar:
        watcher = threading.Thread(target=_watch, args=(spark, bar, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _watch(spark: SparkSession, bar: ProgressBar, ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not ended.wait(LOOK_SECONDS):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        if known:
            bar.reach(sum(each.numCompletedTasks for each in known), sum(each.numTasks for each in known))
