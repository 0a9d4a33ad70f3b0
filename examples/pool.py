#!/usr/bin/env python3
"""Count primes in processes: one process per core, a time limit for each message, and a crash affects only one message.

Each message is a range of numbers to search. Two more messages fail: one never ends, and one crashes its process. Both
become dead letters, and the ranges are still counted.

    python examples/pool.py --ranges 20
    python examples/pool.py --timeout 60

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if all
ranges were counted.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile

from delayq import Consumer, Message, Outgoing, Queue

SIZE = 5000

ranges = Queue("example-ranges", max_retries=0)
counts = Queue("example-counts")  # the processes send their results here


@ranges.handler
def count(message: Message) -> None:
    begin = message.payload
    if begin == "for ever":
        while True:
            pass
    if begin == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    counts.send({"pid": os.getpid(), "primes": sum(map(is_prime, range(begin, begin + SIZE)))})


def is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def main(number: int, timeout: float) -> int:
    ranges.send_many(Outgoing(n * SIZE) for n in range(number))
    ranges.send_many([Outgoing("for ever"), Outgoing("crash")])
    Consumer(ranges, pool="process", timeout=timeout).drain()
    found = []
    while messages := counts.receive(max_messages=100):
        found += [message.payload for message in messages]
        counts.ack(messages)
    primes = sum(each["primes"] for each in found)
    print(f"{primes} primes below {number * SIZE}, counted in {len({each['pid'] for each in found})} processes")
    for error in sorted(letter.error or "" for letter in ranges.dead.list()):
        print(f"dead: {error}")
    ranges.dead.purge()
    return int(len(found) != number)


if __name__ == "__main__":  # the processes also import this file
    parser = argparse.ArgumentParser(description="Count primes in processes.")
    parser.add_argument("--ranges", type=int, default=20, help=f"of {SIZE} numbers each (default: 20)")
    parser.add_argument("--timeout", type=float, default=5, help="seconds that a handler may take (default: 5)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        raise SystemExit(main(arguments.ranges, arguments.timeout))
