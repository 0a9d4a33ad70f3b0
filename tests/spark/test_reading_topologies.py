"""Reads of a cluster, and of a master that sentinels watch."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from delayq import Outgoing, Queue, Topic
from delayq.spark import reading
from delayq.topics.publishing import NewRecord
from tests.conftest import StartServer
from tests.spark import reads
from tests.topologies import Cluster, Watched


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


def test_all_of_a_cluster_is_read(start_server: StartServer):
    url = Cluster(start_server).url
    check_all_reads(url)
    check_stream(url)


def test_master_that_sentinels_watch_is_read(start_server: StartServer):
    url = Watched(start_server).url
    check_all_reads(url)
    check_stream(url)
