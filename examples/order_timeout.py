#!/usr/bin/env python3
"""Cancel orders that are not paid within 30 minutes.

Placing an order sends a message that is due when the time to pay is over. Its id is the order's id. Paying cancels the
message. If the message becomes due, the consumer cancels the order.

The shop's database decides how an order ends, with an UPDATE that changes only open orders. A customer may pay at the
very moment when the message is delivered, and a queue that never loses a message may deliver one twice.

    python examples/order_timeout.py                 customers have 2 seconds to pay
    python examples/order_timeout.py --after 1800    half an hour, as in a real shop

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if every
order ended as expected.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

from delayq import Consumer, Message, Queue

BEGIN = time.monotonic()


class Shop:
    """Orders in SQLite, and the messages that time them out."""

    def __init__(self, database: Path, timeouts: Queue, time_to_pay: float) -> None:
        self.database = database
        self.timeouts = timeouts
        self.time_to_pay = time_to_pay
        self.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL)")

    def place(self, order: str) -> None:
        # Send the message first: without an order it does no harm, but an order without a message stays open for ever.
        sent = self.timeouts.send({"order": order}, delay=self.time_to_pay, id=order)
        self.execute("INSERT OR IGNORE INTO orders VALUES (?, 'open')", order)
        text = f"is placed, to be paid within {self.time_to_pay:g} s" if sent.created else "was already placed"
        say(f"{order} {text}")

    def pay(self, order: str) -> None:
        if self.close(order, "paid"):
            say(f"{order} is paid: its message is {self.timeouts.cancel(order)}")
        else:
            say(f"{order} is refused: too late to pay")

    def time_out(self, message: Message) -> None:
        """Handle a message that is due."""
        order = message.payload["order"]
        if self.close(order, "cancelled"):
            say(f"{order} is cancelled: not paid in time ({message.lateness * 1000:.0f} ms after the deadline)")

    def close(self, order: str, state: str) -> bool:
        """Close an open order; return False if it is closed already."""
        return self.execute("UPDATE orders SET state = ? WHERE id = ? AND state = 'open'", state, order) == 1

    def states(self) -> dict[str, str]:
        with closing(sqlite3.connect(self.database)) as db:
            return dict(db.execute("SELECT id, state FROM orders"))

    def execute(self, statement: str, *values: str) -> int:
        """Run a statement in its own transaction; return the number of rows that it changed."""
        with closing(sqlite3.connect(self.database)) as db, db:
            return db.execute(statement, values).rowcount


def trade(shop: Shop, consumer: Consumer) -> dict[str, str]:
    """Simulate a few customers; return how their orders ended."""
    for order in ("order-1", "order-2", "order-3", "order-3"):  # the last customer clicks twice
        shop.place(order)
    shop.pay("order-1")
    consumer.start()  # first handles the messages that are already due
    while "open" in shop.states().values():
        time.sleep(0.05)
    shop.pay("order-3")
    return shop.states()


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGIN:5.2f}s  {text}\n", end="", flush=True)  # one write, because several threads print


def main() -> int:
    parser = argparse.ArgumentParser(description="Cancel orders that are not paid in time.")
    parser.add_argument("--after", type=float, default=2, metavar="SECONDS", help="the time to pay (default: 2)")
    after = parser.parse_args().after
    if not after >= 0.1:
        parser.error("--after must be 0.1 or more")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with Queue("example-order-timeouts") as timeouts:
            shop = Shop(Path(folder, "shop.db"), timeouts, after)
            consumer = Consumer(timeouts, shop.time_out)  # in production: delayq consume MODULE:QUEUE
            states = trade(shop, consumer)
            consumer.stop()
    print(*(f"{order}: {state}" for order, state in states.items()), sep="\n")
    return int(states != {"order-1": "paid", "order-2": "cancelled", "order-3": "cancelled"})


if __name__ == "__main__":
    raise SystemExit(main())
