#!/usr/bin/env python3
"""Send functions with arguments: a shop's orders are paid, packed and shipped, each step by a task.

`pay` fails the first time and is retried. When it succeeds, its ack sends `pack` in the same step. `ship` has a wrong
address: it is not retried, since only connection errors are. A typo in an argument is refused before anything is sent.

    python examples/tasks.py

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if every
task ended as expected.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from decimal import Decimal

from delayq import Ack, Consumer, Queue, backoff, current_message
from delayq.errors import WrongArguments

shop = Queue("example-tasks")
done: list[str] = []


@shop.task(backoff=backoff.fixed(0.1))
def pay(order: int, amount: Decimal) -> Ack:
    message = current_message()
    assert message is not None, "it runs as a task"
    if message.attempt == 1:
        raise ConnectionError("the bank does not answer")
    done.append(f"order {order}: {amount} paid in attempt {message.attempt}")
    return Ack(then=[pack.message(order)])


@shop.task
def pack(order: int, *, boxes: int = 1) -> int:
    done.append(f"order {order}: packed in {boxes} box{'es' * (boxes > 1)}")
    return boxes


@shop.task(retry_for=ConnectionError)
def ship(order: int, address: str, day: dt.date) -> None:
    if not address:
        raise ValueError(f"order {order} has no address")
    done.append(f"order {order}: shipped to {address} on {day:%A}")


def main() -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with shop:
            pay.send(1, Decimal("12.10"))
            pack.options(delay=0.5, id="pack-2").send(2, boxes=3)
            ship.send(3, "Berlin", dt.date(2026, 12, 24))
            ship.send(4, address="", day=dt.date(2026, 12, 24))
            try:
                pack.send(5, boxs=2)  # type: ignore[call-arg]  # on purpose
            except WrongArguments as error:
                print(f"refused: {error}")
            Consumer(shop, concurrency=1).run(max_messages=6)
            (dead,) = shop.dead.list()
    print("\n".join(done))
    print(f"dead: {dead.reason}: {dead.error}")
    return int(len(done) != 4 or dead.reason != "not-retried")


if __name__ == "__main__":
    raise SystemExit(main())
