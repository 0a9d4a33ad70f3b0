#!/usr/bin/env python3
"""Write sensor reports into a database, hundreds of rows per statement.

Each report is a message. A batch handler writes the waiting reports with one `executemany`, in one transaction. It can
refuse single reports: a report without a number becomes a dead letter, and a report from an unknown sensor is retried a
little later, when the sensor is known. A report that is delivered twice, for example after a crash, is written only
once, because its id is the key of its row.

    python examples/batches.py [--reports 2000]

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store; the database is also
temporary. The exit code is 0 if every report has its row or was refused.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import tempfile
import time
from collections import Counter

from delayq import Consumer, Message, Outgoing, Queue, Reject, RetryAfter

reports = Queue("example-reports")
database = sqlite3.connect(":memory:", check_same_thread=False)  # used only by the single thread of the consumer below
sizes: list[int] = []


@reports.batch_handler(max_messages=500, max_wait=0.1)
def store(messages: list[Message]) -> dict[str, Exception]:
    """Write the rows; return an error for each message without a row."""
    refused: dict[str, Exception] = {}
    known = {name for (name,) in database.execute("SELECT name FROM sensors")}
    for message in messages:
        if not isinstance(message.payload["value"], int | float):
            refused[message.id] = Reject(f"{message.payload['value']!r} is not a number")
        elif message.payload["sensor"] not in known:
            refused[message.id] = RetryAfter(0.2, f"sensor {message.payload['sensor']} is not known yet")
    rows = [
        (message.id, message.payload["sensor"], message.payload["value"])
        for message in messages
        if message.id not in refused
    ]
    with database:  # one transaction: if the database fails, all messages are retried
        database.executemany("INSERT OR IGNORE INTO readings VALUES (?, ?, ?)", rows)
        database.executemany("INSERT OR IGNORE INTO sensors VALUES (?)", [("new",)])  # it becomes known now
    sizes.append(len(messages))
    return refused


def main() -> int:
    parser = argparse.ArgumentParser(description="Write sensor reports into a database, in batches.")
    parser.add_argument("--reports", type=int, default=2000, metavar="N", help="how many, at least 10 (default: 2000)")
    count = parser.parse_args().reports
    if count < 10:
        parser.error(f"--reports {count} is less than 10")
    database.execute("CREATE TABLE sensors (name TEXT PRIMARY KEY)")
    database.execute("CREATE TABLE readings (id TEXT PRIMARY KEY, sensor TEXT, value REAL)")
    database.executemany("INSERT INTO sensors VALUES (?)", [("roof",), ("cellar",)])
    sensors = {3: "new", 4: "new"}  # the others are known
    values = {7: "warm"}  # the others are numbers
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with reports:
            reports.send_many(
                Outgoing({"sensor": sensors.get(n, ("roof", "cellar")[n % 2]), "value": values.get(n, n / 10)})
                for n in range(count)
            )
            consumer = Consumer(reports, concurrency=1)
            consumer.start()
            while (stats := reports.stats()).inside > stats.dead:
                time.sleep(0.02)
            consumer.stop()
            letters = [str(letter.reason) for letter in reports.dead.list()]
    rows = Counter(dict(database.execute("SELECT sensor, count(*) FROM readings GROUP BY sensor")))
    print(f"{count} reports, handled in {len(sizes)} batches of up to {max(sizes)}")
    for sensor, number in sorted(rows.items()):
        print(f"{sensor}: {number} rows")
    print(f"dead: {', '.join(letters)}")
    return int(rows.total() != count - 1 or letters != ["'warm' is not a number"])


if __name__ == "__main__":
    raise SystemExit(main())
