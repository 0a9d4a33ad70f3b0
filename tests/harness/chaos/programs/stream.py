"""A Spark driver that streams rows into two queues: into one with ids, into the other without.

Usage: python -m tests.harness.chaos.programs.stream JSON
"""

from __future__ import annotations

import sys

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from delayq.spark import session
from delayq.spark.session import QUIET


class Task(msgspec.Struct, kw_only=True):
    """The task of the driver.

    Attributes:
        source: a folder of Parquet files with a column `number`; two files are a batch.
        checkpoints: a folder with a checkpoint for each queue.
        named: the queue of the rows with ids.
        nameless: the queue of those without.
    """

    url: str
    source: str
    checkpoints: str
    named: str
    nameless: str


def main(task: Task) -> None:
    spark = session("local[2,4]", QUIET)
    read = spark.readStream.schema("number bigint").option("maxFilesPerTrigger", 2).parquet(task.source)
    payload = f.col("number").cast("string").alias("payload")
    bare = read.select(payload, f.lit(0).alias("delay"))
    queries = [
        send(task, bare.withColumn("id", f.concat(f.lit("row-"), "payload")), task.named),
        send(task, bare, task.nameless),
    ]
    for query in queries:
        query.awaitTermination()


def send(task: Task, rows: DataFrame, queue: str) -> StreamingQuery:
    """Start to send the existing rows to a queue."""
    writer = rows.writeStream.format("delayq").options(url=task.url, queue=queue)
    return writer.option("checkpointLocation", f"{task.checkpoints}/{queue}").trigger(availableNow=True).start()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Task))
