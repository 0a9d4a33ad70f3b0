"""The job commands refuse mistyped arguments before Spark starts."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from delayq.cli import main
from delayq.cli.pipeline import report as report_command
from delayq.cli.pipeline import spark_session
from pyspark.sql import SparkSession

from delayq import Queue
from delayq.errors import InvalidInput
from delayq.lake import object_store
from delayq.spark.jobs.archive import table_of
from delayq.spark.session import QUIET, VERBOSE
from tests.harness.servers import RedisServer

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a command in this process, in an empty folder, and without starting Spark."""

    def no_session(*_: object) -> SparkSession:
        raise AssertionError("Spark was started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELAYQ_URL", redis_server.url)
    monkeypatch.setattr(spark_session, "session", no_session)
    return lambda *words: CliRunner().invoke(main, ["pipeline", *words])


def make_archive(*queues: str) -> None:
    """Make the archive that a run of the job leaves for queues without events."""
    for name in queues:
        Path(table_of("archive", name).work).mkdir(parents=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hydrate --lake typo --horizon 2h", "the lake 'typo' does not exist"),
        ("report --archive typo --to page", "the archive 'typo' does not exist"),
        ("archive --compact --to typo", "the archive 'typo' does not exist"),
        (
            "report emials --archive archive --to page",
            "the archive 'archive' has no queue emials; it has emails, jobs",
        ),
        ("archive --all --to new", "no queue on this server keeps a ledger"),
        ("hydrate --lake lake", "give either --horizon or --until"),
        ("hydrate --lake lake --horizon 2h --until 2030-01-01T00:00Z", "give either --horizon or --until"),
        ("archive jobs --to archive --before 2026-11-20", "--before needs --compact"),
        ("archive jobs --to archive --every 5s", "--every needs --follow"),
        ("archive --compact --to archive --skip-lost", "--skip-lost needs QUEUE or --all"),
    ],
)
def test_mistyped_arguments_are_reported_in_one_line(invoke: Invoke, tmp_path: Path, words: str, expected: str):
    make_archive("jobs", "emails")
    (tmp_path / "lake").mkdir()
    result = invoke(*words.split())
    *_, last = result.stderr.splitlines()  # after a warning about a server that keeps nothing on disk
    assert (result.exit_code, last.startswith("delayq: "), expected in last) == (2, True, True), result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "lake"]


def test_archive_without_events_can_be_compacted(invoke: Invoke):
    make_archive("jobs")
    assert not object_store.exists("archive/events")
    assert invoke("archive", "--compact", "--to", "archive").stdout == "merged 0 files into 0\n"


@pytest.mark.parametrize(("words", "settings"), [([], QUIET), (["--verbose"], VERBOSE)])
def test_verbose_shows_the_whole_log_of_spark(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, words: list[str], settings: dict[str, str]
):
    opened: list[Any] = []

    def session(*given: object) -> None:
        opened.append(given)
        raise InvalidInput("seen")

    monkeypatch.setattr(spark_session, "session", session)
    assert invoke("drain", "jobs", "folder", "--conf", "spark.log.level=DEBUG", *words).exit_code == 2
    assert opened == [(None, settings | {"spark.log.level": "DEBUG"})]


@pytest.mark.parametrize("follow", [False, True])
def test_only_a_following_report_handles_signals(
    follow: bool, invoke: Invoke, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    handlers: list[bool] = []
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    def look(*_: object, **__: object) -> None:
        handlers.append([signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before)
        raise InvalidInput("looked")

    with Queue("jobs", url=redis_server.url) as queue:
        queue.configure(events=True)
    monkeypatch.setattr(spark_session, "session", lambda *_: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(spark_session, "_watch", lambda *_: None)
    for name in ("ledgers", "follow"):
        monkeypatch.setattr(report_command.job, name, look)
    result = invoke("report", "jobs", "--to", "page", *(["--follow"] if follow else []))
    assert (result.exit_code, handlers) == (2, [not follow]), result.output
