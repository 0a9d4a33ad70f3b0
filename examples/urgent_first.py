#!/usr/bin/env python3
"""Serve three queues with one consumer: login codes first, then invoices and newsletters by weight.

Two consumers run one after the other on the same backlog. The first is strict: no invoice starts while a login code
waits. The second serves invoices and newsletters four to one, so newsletters are not starved. Each runs two handlers at
a time.

    python examples/urgent_first.py

The queues are on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if all
messages were served, and the login codes first. On a busy machine, the shares may differ from the weights: while a
queue waits for a fetch, the other one is served.
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
    time.sleep(0.03)  # much longer than a fetch, so both queues usually have messages waiting


def main() -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as queues:
        os.environ["DELAYQ_HOME"] = folder
        for queue, count in ((newsletters, NEWSLETTERS), (invoices, INVOICES), (codes, CODES)):  # urgent ones last
            queues.enter_context(queue).send_many(Outgoing(number) for number in range(count))
        Consumer([codes, invoices], serve, strict=True, concurrency=2).run(max_messages=CODES)
        first = order.copy()
        print(f"strict: {first.count(codes.name)} of the first {CODES} were login codes")

        order.clear()
        Consumer({invoices: 4, newsletters: 1}, serve, concurrency=2).run(max_messages=100)
        print(f"by weight: {order.count(invoices.name)} invoices, {order.count(newsletters.name)} newsletters")

        served = Consumer([codes, invoices, newsletters], serve).drain()
        print(f"the rest: {served}")
    return int(set(first) != {codes.name} or served != INVOICES + NEWSLETTERS - 100)


if __name__ == "__main__":
    raise SystemExit(main())
