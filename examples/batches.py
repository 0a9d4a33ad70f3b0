#!/usr/bin/env python3
"""Put what sensors report into a database, hundreds of rows in one statement.

Each report is a message; a handler of batches writes those that wait with one `executemany`, in one transaction. What
no table would take is refused by itself: a report without a number is a dead letter, and one of a sensor that is not
known yet is tried again a little later, when it is. A report that comes twice, as after a crash, is written once: its
id is the key of its row.

    python examples/batches.py [--reports 2000]

The queue is on the Redis of DELAYQ_URL, or else in an embedded store that is thrown away, like the database. The exit
code is 0 when every report has its row, or is refused.
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
database = sqlite3.connect(":memory:", check_same_thread=False)  # the consumer below has one thread that uses it
sizes: list[int] = []


@reports.batch_handler(max_messages=500, max_wait=0.1)
def store(messages: list[Message]) -> dict[str, Exception]:
    """Write the rows; return what is wrong with the others."""
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
    with database:  # one transaction: an error of the database fails all, and all are tried again
        database.executemany("INSERT OR IGNORE INTO readings VALUES (?, ?, ?)", rows)
        database.executemany("INSERT OR IGNORE INTO sensors VALUES (?)", [("new",)])  # what happens meanwhile
    sizes.append(len(messages))
    return refused


def main() -> int:
    parser = argparse.ArgumentParser(description="Put what sensors report into a database, in batches.")
    parser.add_argument("--reports", type=int, default=2000, metavar="N", help="how many, 10 or more (2000)")
    count = parser.parse_args().reports
    if count < 10:
        parser.error(f"--reports {count} is not 10 or more")
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
