#!/usr/bin/env python3
"""Remind millions of users once a year, at nine o'clock local time, while Redis holds only a few hours of reminders.

Spark builds a table of reminders and defers it to a lake of Parquet files. Then the program moves a clock through the
days. Every hour, it hydrates the reminders that become due within two hours into Redis. It receives and acks the due
ones, and archives the ledger. At the end, it makes a report from the archive.

    python examples/pipeline/reminders.py --users 20000 --days 3
    python examples/pipeline/reminders.py --users 5000000 --keep reminders      # a year; takes hours

It needs Spark: the extra `spark`. The queue is on the Redis server that DELAYQ_URL names, or in a temporary
embedded store. The exit code is 0 if each user was reminded once, at nine.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from delayq import Message, Queue
from delayq.lake.hydrate import hydrate
from delayq.spark import session
from delayq.spark.jobs.archive import archive
from delayq.spark.jobs.defer import defer
from delayq.spark.jobs.report import report, save
from delayq.spark.redis_options import RedisOptions

QUEUE = "example-reminders"
TEXT = "Your subscription ends in a week. Renew it today, and the first month is on us. Reply STOP to hear no more."
HOUR, QUARTER = dt.timedelta(hours=1), dt.timedelta(minutes=15)  # zones differ by quarters of an hour
HORIZON = 2 * HOUR
ENTRIES = 1_000_000  # that the ledger keeps
ENTRIES_EACH = 4  # per message: sent, promoted, delivered, acked
ZONES = [
    *("Pacific/Auckland", "Australia/Sydney", "Asia/Tokyo", "Asia/Shanghai", "Asia/Jakarta", "Asia/Kathmandu"),
    *("Asia/Kolkata", "Asia/Karachi", "Asia/Dubai", "Africa/Nairobi", "Europe/Istanbul", "Europe/Berlin"),
    *("Europe/London", "Africa/Lagos", "Atlantic/Azores", "America/Sao_Paulo", "America/St_Johns"),
    *("America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles", "Pacific/Honolulu"),
]


def reminders(spark: SparkSession, users: int, first: dt.date, days: int) -> DataFrame:
    """Return one row per user: id, payload, and due_at: 9:00 in their zone on one of the days."""
    user = F.col("id")
    zone = F.element_at(F.array(*map(F.lit, ZONES)), (F.pmod(F.xxhash64(user), F.lit(len(ZONES))) + 1).cast("int"))
    day = F.date_add(F.lit(first), F.pmod(F.xxhash64(user, F.lit("day")), F.lit(days)).cast("int"))
    nine = day.cast("timestamp") + F.expr("interval 9 hours")
    return spark.range(users).select(
        F.concat(F.lit("user-"), user).alias("id"),
        F.struct(user.alias("user"), zone.alias("zone"), F.lit(TEXT).alias("text")).alias("payload"),
        F.to_utc_timestamp(nine, zone).alias("due_at"),
    )


class Clock:
    """The clock of the queue. A call returns its time in milliseconds."""

    def __init__(self, start: dt.datetime) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now.timestamp() * 1000


class Reminded:
    """Counts how often each user was reminded, and how many reminders were not at nine."""

    def __init__(self, users: int) -> None:
        self.times = bytearray(users)
        self.count = self.wrong = 0

    def note(self, message: Message, now: dt.datetime) -> None:
        local = now.astimezone(ZoneInfo(message.payload["zone"]))
        self.wrong += (local.hour, local.minute) != (9, 0)
        self.times[message.payload["user"]] += 1
        self.count += 1


def consume(queue: Queue, reminded: Reminded, now: dt.datetime) -> None:
    """Handle all due messages. In production, a consumer does this continuously."""
    while messages := queue.receive(max_messages=500):
        for message in messages:
            reminded.note(message, now)
        queue.ack(messages)


def live(
    queue: Queue, lake: str, clock: Clock, end: dt.datetime, reminded: Reminded, archived: Callable[[], object]
) -> int:
    """Advance the clock to the end; return the highest number of messages in Redis at once."""
    most = kept = 0
    while clock.now < end:
        if clock.now.minute == 0:
            hydrate(queue, lake, HORIZON, now=clock.now, keep=24 * HOUR)
            most = max(most, queue.stats().inside)
        consume(queue, reminded, clock.now)
        if (reminded.count - kept) * ENTRIES_EACH > ENTRIES / 2:  # before the ledger drops unarchived entries
            archived()
            kept = reminded.count
            print(f"{clock.now:%Y-%m-%d}  {reminded.count:,} reminded", flush=True)
        clock.now += QUARTER
    archived()
    return most


def run(users: int, days: int, folder: Path) -> int:
    """Return the exit code."""
    spark, server = session(settings={"spark.ui.enabled": "false", "spark.log.level": "ERROR"}), RedisOptions()
    lake, kept = str(folder / "lake"), str(folder / "archive")
    first = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=2)
    start = dt.datetime.combine(first, dt.time(18), dt.UTC) - dt.timedelta(days=1)  # before nine in the east
    reminded = Reminded(users)

    files = defer(spark, reminders(spark, users, first, days), lake, QUEUE, run="year").collect()
    rows = sum(file.rows for file in files)
    print(f"deferred    {rows:,} reminders of {users:,} users, in {len(files):,} files, one an hour")
    clock = Clock(start)
    with Queue(QUEUE, events=ENTRIES, clock=clock) as queue:
        end = start + dt.timedelta(days=days, hours=6)
        most = live(queue, lake, clock, end, reminded, lambda: archive(spark, server, [QUEUE], kept))
        stats = queue.stats()
    print(f"hydrated    {stats.sent:,}, with at most {most:,} in Redis at once")
    print(f"consumed    {reminded.count:,}, {reminded.wrong:,} of them not at nine")
    figures = report(spark, kept)
    save(figures, str(folder))
    reported = figures.queues.collect()[0]
    print(f"reported    {reported.sent:,} sent, {reported.acked:,} acked, at most {reported.late_max:g} s late")
    spark.stop()
    once = reminded.times.count(1)
    print(f"{once:,} of {users:,} users were reminded once, at nine o'clock local time")
    return int(once != users or reminded.wrong != 0 or reported.acked != users)


def main() -> int:
    parser = argparse.ArgumentParser(description="Remind users once a year, while Redis holds only hours of them.")
    parser.add_argument("--users", type=int, default=20_000, metavar="N", help="how many (default: 20000)")
    parser.add_argument("--days", type=int, default=365, metavar="N", help="days to spread them over (default: 365)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for the lake, the archive and the report")
    given = parser.parse_args()
    if given.users < 1 or not 1 <= given.days <= 3650:
        parser.error("--users must be 1 or more, and --days 1 to 3650")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ |= {"DELAYQ_HOME": f"{folder}/store", "SPARK_LOCAL_DIRS": f"{folder}/spark"}
        return run(given.users, given.days, given.keep or Path(folder))


if __name__ == "__main__":
    raise SystemExit(main())
