"""The Spark session of delayq's commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, PySparkRuntimeError
from pyspark.sql import DataFrameWriter, SparkSession
from pyspark.sql.conf import RuntimeConfig
from pyspark.sql.streaming.readwriter import DataStreamWriter

from delayq.spark import java
from delayq.spark.data_source import DelayqSource

LOCAL = "local[*,4]"
"""All cores of this machine; a failing task is tried four times, as on a cluster."""

CONNECT = "sc://"
"""The beginning of a Spark Connect server's address."""

_OPTIONS = "spark.driver.extraJavaOptions"
_LOG = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"

QUIET = {_OPTIONS: _LOG, "spark.ui.enabled": "false"}
"""Settings with which Spark logs only errors that it does not raise, one line each, and serves no web page."""

VERBOSE = QUIET | {_OPTIONS: f"{_LOG} -Ddelayq.log=info -Ddelayq.log.notices=info -Ddelayq.log.trace=full"}
"""Settings with which Spark logs what it does, and each error with its traceback, and serves no web page."""

URLS = r"(?i)\b(?:redis|valkey|unix)[\w+]*://(?:.*@)?\S*"
"""Spark replaces what matches this in the texts of plans: a URL up to its end, or up to the last @ of its line."""

_REDACTION = "spark.sql.redaction.string.regex"
_SETTINGS = {"spark.sql.session.timeZone": "UTC"}
_OWN_SETTINGS = _SETTINGS | {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS = _OWN_SETTINGS | {
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def session(master: str | None = None, settings: Mapping[str, str] | None = None, name: str = "delayq") -> SparkSession:
    """Return a Spark session that knows the format "delayq"; this process's session if there is one.

    An existing session, even one that another thread started, keeps its settings. A new one shows times in UTC, unless
    the settings say otherwise.

    Args:
        master: of the cluster, or the address of a Spark Connect server (``sc://…``), which must have delayq installed.
            None for Spark's own configuration, such as that of spark-submit, or else this machine.
        settings: of Spark; they take precedence over delayq's own.

    Raises:
        NoJava: this machine has no Java, and no wheel has one for it.
    """
    found = running() or _begin(master, settings or {}, name)
    if SparkSession.getActiveSession() is None:  # in a thread without one, Spark does not find Python formats
        _make_active(found)
    register(found)
    return found


def running() -> SparkSession | None:
    """Return the session of this thread, or else of the process; None if there is none."""
    try:
        found = SparkSession.active()
    except PySparkRuntimeError:
        return None
    context = getattr(found, "_sc", None)  # a session of Spark Connect has none
    was_stopped = context is not None and context._jsc is None  # noqa: SLF001  # Spark shows it in no other way
    return None if was_stopped else found


def register(spark: SparkSession) -> None:
    """Register the format "delayq" in a session, even if delayq is not installed but only on the path.

    From then on, all threads of this process can write with it.
    """
    for writer in (DataFrameWriter, DataStreamWriter):
        _let_threads_write(writer)
    try:
        spark.dataSource.register(DelayqSource)
    except AnalysisException as error:  # Spark 4.0 has found it by itself, and accepts only one with this name
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


@cache  # once in a process
def _let_threads_write(writer: type[DataFrameWriter | DataStreamWriter]) -> None:
    """Let `format("delayq")` of a writer make the table's session that of the thread, if the thread has none.

    Spark looks for a format written in Python in the thread's session only. Reads make it the thread's session by
    themselves, but writes do not, and threads do not inherit it, not even `InheritableThread`.
    """
    plain = writer.format

    @wraps(plain)
    def named(self: Any, source: str) -> Any:
        if source.lower() == DelayqSource.name() and SparkSession.getActiveSession() is None:
            _make_active(self._spark)
        return plain(self, source)

    setattr(writer, "format", named)  # noqa: B010  # mypy refuses an assignment to a method


def _make_active(spark: SparkSession) -> None:
    spark.createDataFrame([], "none int")  # makes it this thread's session


def _begin(master: str | None, settings: Mapping[str, str], name: str) -> SparkSession:
    if master is None and _is_configured():  # other settings of spark-submit stay in force
        return _opened(SparkSession.builder, {**_SETTINGS, **settings})
    if master is not None and master.startswith(CONNECT):
        return _opened(SparkSession.builder.remote(master), {**_SETTINGS, **settings})
    java.provide()
    # Otherwise Spark uses the first python3 on the path, here and on the executors.
    os.environ.setdefault("PYSPARK_PYTHON", settings.get("spark.pyspark.python", sys.executable))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = master or LOCAL
    own = _LOCAL_SETTINGS if master.startswith("local") else _OWN_SETTINGS
    return _opened(SparkSession.builder.appName(name).master(master), {**own, **settings})


def _opened(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    hide_urls(found.conf)  # only now, as it would replace what spark-submit or the server has set
    return found


def hide_urls(settings: RuntimeConfig) -> None:
    """Let Spark hide URLs of servers in the texts of plans, unless a setting says what it hides."""
    if not any(settings.get(name, None) for name in (_REDACTION, "spark.redaction.string.regex")):
        settings.set(_REDACTION, URLS)


def _is_configured() -> bool:
    """Whether spark-submit started this program with a master, or Spark Connect is configured."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ
