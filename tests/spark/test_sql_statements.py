"""SQL statements with the format: views work, tables are refused, and no text of a plan shows a password."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.conf import RuntimeConfig

from delayq import Queue
from delayq.errors import InvalidInput
from delayq.spark.errors import translated
from delayq.spark.redis_options import RedisOptions
from delayq.spark.session import hide_urls
from tests.harness.passwords import MARK, leaks
from tests.harness.servers import RedisServer

OPTIONS = f"OPTIONS (url 'redis://user:{MARK}@127.0.0.1:1/0', queue 'mail')"
REDACTION = "spark.sql.redaction.string.regex"


@pytest.fixture
def place(redis_server: RedisServer, tmp_path: Path) -> str:
    """Return what names the server without its URL."""
    with Queue("mail", url=redis_server.url) as queue:
        queue.send("hello", id="first", delay=60)
    (tmp_path / "url").write_text(f"{redis_server.url}\n")
    return f"file:{tmp_path / 'url'}"


def test_table_is_refused_with_what_to_do_and_is_not_made(spark: SparkSession):
    remedy = "use CREATE TEMPORARY VIEW.*if it has a password, change that"
    with pytest.raises(InvalidInput, match=rf"CREATE TABLE … USING delayq makes no table.*{remedy}"), translated():
        spark.sql(f"CREATE TABLE letters USING delayq {OPTIONS}")
    with pytest.raises(InvalidInput, match=r"CREATE TABLE … USING delayq makes no table[^;]*$"), translated():
        spark.sql("CREATE TABLE letters USING delayq OPTIONS (queue 'mail')")
    assert not spark.catalog.tableExists("letters")


def test_table_with_columns_says_what_to_do_when_it_is_used(spark: SparkSession):
    """Spark makes it without asking the format."""
    spark.sql(f"CREATE TABLE listed (id string, payload string) USING delayq {OPTIONS}")
    try:
        for use in ("SELECT * FROM listed", "INSERT INTO listed VALUES ('a', 'b')"):
            with pytest.raises(InvalidInput, match=r"no options are given. CREATE TABLE .* use CREATE"), translated():
                spark.sql(use).collect()
    finally:
        spark.sql("DROP TABLE listed")


def test_view_needs_no_password(spark: SparkSession, place: str):
    spark.sql(f"CREATE TEMPORARY VIEW waiting USING delayq OPTIONS (urlFrom '{place}', queue 'mail')")
    try:
        assert [row["id"] for row in spark.sql("SELECT id FROM waiting").collect()] == ["first"]
    finally:
        spark.catalog.dropTempView("waiting")


def test_write_needs_no_password(spark: SparkSession, redis_server: RedisServer, place: str):
    rows = spark.createDataFrame([("second", "a", 60)], "id string, payload string, delay int")
    rows.write.format("delayq").mode("append").options(urlFrom=place, queue="mail").save()
    with Queue("mail", url=redis_server.url) as queue:
        assert queue.get("second") is not None


def test_texts_of_plans_show_no_password(spark: SparkSession):
    """The nodes of a plan, beside its text, do: docs/spark-clusters.md says so."""
    statement = f"CREATE TABLE letters (id string) USING delayq {OPTIONS}"
    (row,) = spark.sql(f"EXPLAIN EXTENDED {statement}").collect()
    assert "queue" in row["plan"]
    spark.sql(statement)
    spark.sql("DROP TABLE letters")
    store: Any = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    plans = [executions.apply(number).physicalPlanDescription() for number in range(executions.size())]
    assert any("TableSpec" in plan for plan in plans)
    assert leaks(row["plan"] + "".join(plans)) == []


@pytest.mark.parametrize("name", [REDACTION, "spark.redaction.string.regex"])
def test_redaction_that_was_set_stays(name: str):
    settings = Settings({name: "hush"})
    hide_urls(cast("RuntimeConfig", settings))
    assert settings == {name: "hush"}


class Settings(dict[str, str]):
    """The settings of a session: a real one cannot change those of Spark's core."""

    set = dict.__setitem__


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("nowhere", "is not env:NAME or file:PATH"),
        (f"redis://:{MARK}@localhost", "is not env:NAME or file:PATH: give the place of the URL, not the URL"),
        (f"env:redis://:{MARK}@localhost", "is not env:NAME or file:PATH"),
        ("env:", "is not env:NAME or file:PATH"),
        ("env:DELAYQ_NOT_SET", "the variable DELAYQ_NOT_SET, which is not set"),
        ("file:/nowhere/url", "the file /nowhere/url, which the driver cannot read: No such file"),
        ("file:/dev/null", "the file /dev/null, which is empty"),
    ],
)
def test_place_without_a_url_is_refused(given: str, error: str):
    with pytest.raises(InvalidInput, match=f'the option "urlFrom" .*{error}') as caught:
        RedisOptions.of({"urlFrom": given})
    assert leaks(str(caught.value)) == []


def test_url_comes_from_a_variable_of_the_driver(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REMINDERS", "redis://localhost:7")
    assert repr(RedisOptions.of({"urlFrom": "env:REMINDERS"})) == "<Server redis://localhost:7>"
    with pytest.raises(InvalidInput, match='the option "url" and the option "urlFrom" both say'):
        RedisOptions.of({"urlFrom": "env:REMINDERS", "url": "redis://localhost"})
