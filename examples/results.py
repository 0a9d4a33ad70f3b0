#!/usr/bin/env python3
"""Wait for what a task returns: a page asks for the price of a route, and shows it.

`fare` returns a price. Its first attempt fails, and its result comes with the second. `fare` of an unknown city fails
permanently, and the waiting program gets the error of the task. A consumer runs in the same process, as in development.

    python examples/results.py

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if each
result was as expected.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
import threading
from decimal import Decimal

from delayq import Consumer, Queue, ResultTimeout, TaskFailed, backoff, current_message

travel = Queue("example-results")
KILOMETRES = {"Paris": 1054, "Rome": 1502}


@travel.task(results=dt.timedelta(minutes=10), backoff=backoff.fixed(0.1), retry_for=ConnectionError)
def fare(city: str) -> Decimal:
    message = current_message()
    assert message is not None, "it runs as a task"
    if message.attempt == 1 and city == "Paris":
        raise ConnectionError("the railway does not answer")
    return Decimal(KILOMETRES[city]) / 10


def main() -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with travel:
            paris, later = fare.send("Paris"), fare.options(delay=60).send("Rome")
            consumer = Consumer(travel, concurrency=2)
            thread = threading.Thread(target=consumer.run)
            thread.start()
            try:
                price = paris.result(timeout=30)
                print(f"Paris: {price}")
                try:
                    fare.send("Atlantis").result(timeout=30)
                except TaskFailed as error:
                    failed = error
                    print(f"Atlantis: {error.type}, {error.reason}")
                try:
                    later.result(timeout=0)
                except ResultTimeout as error:
                    print(f"Rome: {error}")
            finally:
                consumer.stop()
                thread.join()
            record = travel.result(paris.id)
    assert record is not None
    print(f"Paris took {record.attempts} attempts")
    return int((price, failed.type, record.attempts) != (Decimal("105.4"), "KeyError", 2))


if __name__ == "__main__":
    raise SystemExit(main())
