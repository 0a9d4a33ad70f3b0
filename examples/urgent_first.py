#!/usr/bin/env python3
"""Serve three queues with one consumer: login codes before all else, then invoices and newsletters by their weights.

Two consumers in a row, on one backlog. The first is strict: no invoice begins while a login code waits. The second
serves invoices and newsletters four to one, so that newsletters are not starved. Each has two handlers for all queues.

    python examples/urgent_first.py

The queues are on the Redis of DELAYQ_URL, or else in an embedded store that is thrown away. The exit code is 0 when all
were served as they should.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack

from delayq import Consumer, Message, Outgoing, Queue

CODES, INVOICES, NEWSLETTERS = 10, 100, 100

codes = Queue("example-codes")
invoices = Queue("example-invoices")
newsletters = Queue("example-newsletters")

order: list[str] = []


def serve(message: Message) -> None:
    order.append(message.queue)
    time.sleep(0.002)


def main() -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as queues:
        os.environ["DELAYQ_HOME"] = folder
        for queue, count in ((newsletters, NEWSLETTERS), (invoices, INVOICES), (codes, CODES)):  # the urgent ones last
            queues.enter_context(queue).send_many(Outgoing(number) for number in range(count))
        Consumer([codes, invoices], serve, strict=True, concurrency=2).run(max_messages=CODES)
        first = order.copy()
        print(f"strict: {first.count(codes.name)} of the first {CODES} were login codes")

        order.clear()
        Consumer({invoices: 4, newsletters: 1}, serve, concurrency=2).run(max_messages=100)
        print(f"by weights: {order.count(invoices.name)} invoices, {order.count(newsletters.name)} newsletters")

        served = Consumer([codes, invoices, newsletters], serve).drain()
        print(f"the rest: {served}")
    is_by_weight = abs(order[:100].count(invoices.name) - 80) <= 8  # the first few go to who is there first
    return int(set(first) != {codes.name} or not is_by_weight or served != INVOICES + NEWSLETTERS - 100)


if __name__ == "__main__":
    raise SystemExit(main())
