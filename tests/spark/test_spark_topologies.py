"""Reads and writes on a cluster, and on a master behind Sentinel."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from delayq import Outgoing, Queue, Topic
from delayq.operations.topics.publish import NewRecord
from delayq.spark import reading
from tests.conftest import StartServer
from tests.harness.spark import reads
from tests.harness.spark.kept import assert_whole
from tests.harness.spark.tables import table, written
from tests.harness.topologies import Cluster, Watched


def check_all_reads(url: str) -> None:
    with Queue("mail", url=url, shards=3, events=True) as queue:
        queue.send_many([Outgoing(n, id=f"{n}") for n in range(60)])
        taken = queue.receive(20)
        taken[0].reject("unwanted")
        assert queue.cancel(taken[1].id) == "in_flight"
        rows = reads.read({"url": url, "queue": "mail"})
        assert {row["id"]: row["payload"] for row in rows} == {f"{n}": f"{n}" for n in range(60)}
        assert [row["id"] for row in rows if row["cancelled"]] == [taken[1].id]
        assert reads.ids(reads.read({"url": url, "queue": "mail", "read": "dead"})) == [taken[0].id]
        assert reads.read({"url": url, "queue": "mail", "read": "stats"})[0]["dead"] == 1
        events = [row["event"] for row in reads.read({"url": url, "events": "mail"})]
        assert (events.count("sent"), events.count("died")) == (60, 1)


def check_stream(url: str) -> None:
    options = {"url": url, "topic": "orders"}
    with Topic("orders", url=url, shards=3) as topic:
        topic.publish_many([NewRecord(n) for n in range(60)])
    reader = reading.stream_reader(options, reads.schema(options))
    start = reader.initialOffset()
    middle = reader.latestOffset(start, ReadMaxRows(20))
    end = reader.latestOffset(middle, ReadAllAvailable())
    batches = [list(reader.partitions(*ends)) for ends in ((start, middle), (middle, end))]
    reader.stop()
    first, second = ([row for each in pieces for row in reads.rows(reader.read(each))] for pieces in batches)
    assert len(first) == 20
    assert sorted(int(row["payload"]) for row in first + second) == list(range(60))


def check_writes(spark: SparkSession, url: str, folder: Path) -> list[str]:
    """Write a table; when all of it is delivered, write it again with one more row, as a rerun does.

    Returns:
        one key of each shard.
    """
    rows = table(spark, [(f"m{n}", f"{n}", 0.0) for n in range(60)], "id string, payload string, delay double")
    with Queue("jobs", url=url, shards=6) as queue:
        assert queue.cancel(queue.send("x").id) == "cancelled"  # this records the number of shards
        report = written(rows, url, folder)
        assert report == {"queue": "jobs", "sent": 60, "existing": 0, "rejected": 0}
        taken = queue.receive(60)
        assert {message.id: message.payload for message in taken} == {f"m{n}": f"{n}" for n in range(60)}
        assert all(queue.ack(taken))

        more = rows.union(table(spark, [("new", "new", 0.0)], rows.schema.simpleString()))
        report = written(more, url, folder)
        assert (report["sent"], report["existing"]) == (1, 60)
        assert [message.id for message in queue.receive(60)] == ["new"]
        assert_whole(queue)
        return [scripts.keys.meta for scripts in queue._context.shards]


def test_all_nodes_of_a_cluster_are_read_and_written_once(
    spark: SparkSession, start_server: StartServer, tmp_path: Path
):
    cluster = Cluster(start_server)
    check_all_reads(cluster.url)
    check_stream(cluster.url)
    keys = check_writes(spark, cluster.url, tmp_path)
    assert {cluster.owner(key).port for key in keys} == {node.port for node in cluster.masters}


def test_master_behind_sentinel_is_read_and_written_once(
    spark: SparkSession, start_server: StartServer, tmp_path: Path
):
    url = Watched(start_server).url
    check_all_reads(url)
    check_stream(url)
    check_writes(spark, url, tmp_path)
