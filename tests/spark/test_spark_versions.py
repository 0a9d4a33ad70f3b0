"""What the format does on the installed Spark. CI also runs this file on 4.0 and 4.1."""

from __future__ import annotations

import subprocess
import sys

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from delayq import Outgoing, Queue
from delayq.errors import InvalidInput
from delayq.spark import DelayqSource
from tests.harness.servers import RedisServer

NEWER = (
    "import sys\n"
    "from pyspark.sql import datasource\n"
    "vars(datasource).pop('DataSourceStreamArrowWriter')\n"
    "sys.modules['pyspark.sql.streaming.datasource'] = None\n"
)
"""Takes away what Spark 4.1 and 4.2 brought."""


def test_written_table_can_be_read_and_filtered(spark: SparkSession, redis_server: RedisServer):
    rows = spark.range(20).selectExpr("concat('m', id) as id", "struct(id) as payload", "cast(60 as int) as delay")
    rows.write.format("delayq").mode("append").option("url", redis_server.url).save("mail")
    frame = spark.read.format("delayq").option("url", redis_server.url).load("mail")
    found = frame.where("state = 'pending' and id in ('m1', 'm7', 'x') and due_at > '2020-01-01'").collect()
    assert sorted((row["id"], row["payload"]) for row in found) == [("m1", '{"id":1}'), ("m7", '{"id":7}')]
    assert frame.where("state = 'dead'").collect() == []


def test_queries_on_one_dataframe_do_not_affect_each_other(spark: SparkSession, redis_server: RedisServer):
    with Queue("mail", url=redis_server.url) as queue:
        queue.send_many([Outgoing("x", id="now"), Outgoing("x", id="later", delay=60)])
        queue.receive()[0].reject("unwanted")
    frame = spark.read.format("delayq").option("url", redis_server.url).load("mail")
    dead, pending = frame.where("state = 'dead'"), frame.where("state = 'pending'")
    assert [row["id"] for row in dead.collect()] == ["now"]
    assert sorted(row["id"] for row in frame.collect()) == ["later", "now"]
    assert sorted(row["id"] for row in dead.union(pending).collect()) == ["later", "now"]
    assert dead.join(frame.select("id"), "id").count() == 1


def test_format_needs_nothing_that_spark_40_lacks():
    subprocess.run([sys.executable, "-c", f"{NEWER}import delayq.spark.jobs.schedule"], check=True)


def test_streams_on_an_old_spark_are_refused_with_the_version_they_need(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    expected = "streams need Spark 4.2 or newer, but this is Spark 4.1.4"
    with pytest.raises(InvalidInput, match=expected):
        DelayqSource({"topic": "orders"}).streamReader(StructType())
    with pytest.raises(InvalidInput, match=expected):
        DelayqSource({"queue": "mail"}).streamWriter(StructType(), overwrite=False)
