"""A program whose Spark is behind Spark Connect. Usage: connect_client.py ADDRESS; it prints what it found."""

from __future__ import annotations

import json
import sys
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000


def main(address: str) -> None:
    spark = SparkSession.builder.remote(address).getOrCreate()
    rows = spark.range(ROWS).selectExpr("concat('reminder-', id) AS id", "cast(id AS string) AS payload", "60 AS delay")
    rows.write.format("delayq").option("queue", "letters").mode("append").save()
    spark.stop()

    from delayq.spark import session  # noqa: PLC0415  # up to here, only the server needs it

    again = session(address)
    copied = copy_with_foreach_batch(again)
    messages = again.read.format("delayq").option("queue", "letters").load()
    found = messages.where("""id = concat('reminder-', trim(BOTH '"' FROM payload)) AND state = 'pending'""").count()
    print(json.dumps({"found": found, "copied": copied, "zone": again.conf.get("spark.sql.session.timeZone")}))  # noqa: T201
    again.stop()


def copy_with_foreach_batch(spark: SparkSession) -> int:
    """Write the ledger of a queue into another queue, batch by batch; return how many messages this sent."""

    def send(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("concat('copy-', id) AS id", "event AS payload", "60 AS delay")
        rows.write.format("delayq").option("queue", "copies").option("run", f"batch {number}").mode("append").save()

    events = spark.readStream.format("delayq").options(events="letters", maxEntriesPerTrigger="400").load()
    with TemporaryDirectory() as checkpoint:
        writing = events.where("event = 'sent'").writeStream.foreachBatch(send).trigger(availableNow=True)
        query = writing.option("checkpointLocation", checkpoint).start()
        query.awaitTermination()
        query.stop()
    return spark.read.format("delayq").option("queue", "copies").load().count()


if __name__ == "__main__":
    main(sys.argv[1])
