#!/usr/bin/env python3
"""Send mails no faster than the provider accepts them, with any number of consumers.

The rate is stored with the queue, so all consumers share it: two here, and in production as many processes as you like.
Messages above the rate wait in the queue. After a quarter of the mails, the provider allows a higher rate, and the
consumers use it.

    python examples/rate_limit.py
    python examples/rate_limit.py --mails 60

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if every
mail was sent, and no faster than allowed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

from delayq import Consumer, Message, Outgoing, Queue

FIRST, THEN = 5, 20  # mails in half a second
HALF_A_SECOND = 500_000  # microseconds
BEGIN = time.monotonic()

sent: list[int] = []


def deliver(message: Message) -> None:
    """Hand a mail to the provider."""
    sent.append(round(message.handed_ms * 1000))  # microseconds, by the server's clock


def busiest(moments: list[int]) -> int:
    """Return the highest number of mails in any half second."""
    return max(sum(begin <= each < begin + HALF_A_SECOND for each in moments) for begin in moments)


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGIN:5.2f}s  {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Send mails no faster than the provider accepts them.")
    parser.add_argument("--mails", type=int, default=40, metavar="N", help="how many (default: 40)")
    mails = parser.parse_args().mails
    if mails < 1:
        parser.error("--mails must be 1 or more")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with Queue("example-mails", rate=f"{FIRST}/500ms") as queue, Queue("example-mails") as other:
            queue.send_many(Outgoing({"to": f"user-{number}@example.org"}) for number in range(mails))
            consumers = [Consumer(queue, deliver), Consumer(other, deliver)]
            for consumer in consumers:
                consumer.start()
            while len(sent) < mails / 4:
                time.sleep(0.05)
            say(f"{len(sent)} mails sent, {queue.stats().ready} waiting")
            slow = busiest(list(sent))
            queue.configure(rate=f"{THEN}/500ms")
            while queue.stats().inside:
                time.sleep(0.05)
            for consumer in consumers:
                consumer.stop()
    say(f"{len(sent)} mails sent")
    print(f"at first up to {slow} in any half second, then up to {busiest(sent)}")
    return int(len(sent) != mails or slow > FIRST or busiest(sent) > THEN)


if __name__ == "__main__":
    raise SystemExit(main())
