#!/usr/bin/env python3
"""Send mails no faster than the provider takes them, from any number of consumers.

The rate is stored with the queue, so the consumers share it: here two, in life as many processes as you like. What may
not go yet waits in the queue. In the middle, the provider grants a higher rate, and the consumers go on with that.

    python examples/rate_limit.py
    python examples/rate_limit.py --mails 60

The queue is on the Redis of DELAYQ_URL, or else in an embedded store that is thrown away. The exit code is 0 when every
mail was sent, and no faster than it was allowed.
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
    """Return the most mails in any half a second."""
    return max(sum(begin <= each < begin + HALF_A_SECOND for each in moments) for begin in moments)


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGIN:5.2f}s  {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Send mails no faster than the provider takes them.")
    parser.add_argument("--mails", type=int, default=40, metavar="N", help="how many (default: 40)")
    mails = parser.parse_args().mails
    if mails < 1:
        parser.error("--mails is to be 1 or more")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with Queue("example-mails", rate=f"{FIRST}/500ms") as queue, Queue("example-mails") as other:
            queue.send_many(Outgoing({"to": f"user-{number}@example.org"}) for number in range(mails))
            consumers = [Consumer(queue, deliver), Consumer(other, deliver)]
            for consumer in consumers:
                consumer.start()
            while len(sent) < mails / 4:
                time.sleep(0.05)
            say(f"{len(sent)} mails are sent, {queue.stats().ready} wait")
            slow = busiest(list(sent))
            queue.configure(rate=f"{THEN}/500ms")
            while queue.stats().inside:
                time.sleep(0.05)
            for consumer in consumers:
                consumer.stop()
    say(f"{len(sent)} mails are sent")
    print(f"at first up to {slow} in any half a second, then up to {busiest(sent)}")
    return int(len(sent) != mails or slow > FIRST or busiest(sent) > THEN)


if __name__ == "__main__":
    raise SystemExit(main())
