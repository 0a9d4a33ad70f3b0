"""A program whose Spark is behind Spark Connect. Usage: connect_client.py ADDRESS; it prints what it found."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

ROWS = 1_000


def main(address: str) -> None:
    spark = SparkSession.builder.remote(address).getOrCreate()
    rows = spark.range(ROWS).selectExpr("concat('reminder-', id) AS id", "cast(id AS string) AS payload", "60 AS delay")
    rows.write.format("delayq").option("queue", "letters").mode("append").save()
    spark.stop()

    from delayq.spark import session  # noqa: PLC0415  # up to here, only the server needs it

    again = session(address)
    messages = again.read.format("delayq").option("queue", "letters").load()
    found = messages.where("""id = concat('reminder-', trim(BOTH '"' FROM payload)) AND state = 'pending'""").count()
    print(json.dumps({"found": found, "zone": again.conf.get("spark.sql.session.timeZone")}))  # noqa: T201
    again.stop()


if __name__ == "__main__":
    main(sys.argv[1])
