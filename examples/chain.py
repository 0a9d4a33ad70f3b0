#!/usr/bin/env python3
"""Ship orders in four steps. Each step sends the next one when it is done.

If a step acked first and then sent the next one, a crash in between would lose the order. If it sent first, a crash
would duplicate the order. `return Ack(then=[…])` does both in one step in Redis. A step that fails has sent nothing,
and is retried.

    python examples/chain.py
    python examples/chain.py --orders 20

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if every
order went through all steps exactly once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

from delayq import Ack, Consumer, Message, Outgoing, Queue, backoff

BEGIN = time.monotonic()
STEPS = ["reserve", "charge", "pack", "ship"]


def handle(message: Message) -> Ack:
    """Do one step of an order, and return the next one."""
    order, step = message.payload["order"], message.payload["step"]
    if (order, step, message.attempt) == ("order-2", "charge", 1):
        say("order-2: charge failed: the bank does not answer")
        raise TimeoutError("the bank does not answer")
    say(f"{order}: {step}")
    if step == STEPS[-1]:
        return Ack()
    following = STEPS[STEPS.index(step) + 1]
    return Ack(then=[Outgoing({"order": order, "step": following}, delay=0.1)])


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGIN:5.2f}s  {text}\n", end="", flush=True)  # one write, because several threads print


def main() -> int:
    parser = argparse.ArgumentParser(description="Ship orders in four steps. Each step sends the next one.")
    parser.add_argument("--orders", type=int, default=3, metavar="N", help="how many (default: 3)")
    orders = parser.parse_args().orders
    if orders < 1:
        parser.error("--orders must be 1 or more")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with Queue("example-chain", backoff=backoff.fixed(0.5)) as queue:
            before = queue.stats()
            for number in range(1, orders + 1):
                queue.send({"order": f"order-{number}", "step": STEPS[0]}, id=f"order-{number}")
            consumer = Consumer(queue, handle)  # in production: delayq consume MODULE:QUEUE
            consumer.start()
            while queue.stats().inside:
                time.sleep(0.05)
            consumer.stop()
            after = queue.stats()
    sent, acked = after.sent - before.sent, after.acked - before.acked
    print(f"{orders} orders, {len(STEPS)} steps each: {sent} messages sent, {acked} acked")
    return int((sent, acked) != (orders * len(STEPS), orders * len(STEPS)))


if __name__ == "__main__":
    raise SystemExit(main())
