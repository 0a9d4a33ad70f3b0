#!/usr/bin/env python3
"""Poll many slow services from one process: up to a thousand async handlers at once, with retries.

Each message is a service to poll. Its handler spends most of its time waiting, so one thread is enough for all of them.
If a service is down, the handler raises, and the message is retried later.

    python examples/async_fetch.py --services 500

The services are simulated: they take half a second to answer, and every tenth is down at first. The queue is on the
Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if every service has answered.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time

from delayq import Outgoing, backoff
from delayq.aio import Consumer, Message, Queue

ANSWER_SECONDS = 0.5

services = Queue("example-services", max_retries=5, backoff=backoff.fixed(0.5))
answered: set[str] = set()


@services.handler
async def ask(message: Message) -> None:
    await asyncio.sleep(ANSWER_SECONDS)  # in a real program: await an HTTP client
    if message.payload["number"] % 10 == 0 and message.attempt == 1:
        raise ConnectionError("the service is down")
    answered.add(message.id)


async def main(count: int) -> int:
    begin = time.monotonic()
    async with services:
        sent = await services.send_many(Outgoing({"number": n}) for n in range(count))
        deliveries = count + (count + 9) // 10  # every tenth is tried twice
        await Consumer(services, concurrency=1000).run(max_messages=deliveries)
        stats = await services.stats()
    print(f"{len(answered)} services answered, {stats.nacked} on the second try")
    one_by_one = deliveries * ANSWER_SECONDS
    print(f"{time.monotonic() - begin:.1f}s; one by one, it would take {one_by_one:.0f}s")
    return int(answered != {message.id for message in sent})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Poll many slow services with one process.")
    parser.add_argument("--services", type=int, default=500, help="how many (default: 500)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        raise SystemExit(asyncio.run(main(arguments.services)))
