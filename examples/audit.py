#!/usr/bin/env python3
"""Show what happened to each message, and raise an alarm for those that died.

The queue keeps a ledger: an entry for each transition of a message. The program makes three payments. One is charged at
once, one when the bank answers again, and one never, because its customer is unknown. A group reads the ledger as a
topic and raises the alarm. Then the program prints the history of each payment, although the queue no longer holds the
first two.

    python examples/audit.py

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if the
ledger was complete.
"""

from __future__ import annotations

import os
import tempfile

from delayq import Consumer, Event, Message, Outgoing, Queue, Record, Reject, TopicConsumer, backoff


def charge(message: Message) -> None:
    if message.payload["customer"] == "nobody":
        raise Reject("no such customer")
    if message.payload["customer"] == "ben" and message.attempt == 1:
        raise TimeoutError("the bank does not answer")


def described(event: Event) -> str:
    late = "" if event.late is None else ", on time" if event.late < 1 else f", {event.late:.0f} s late"
    reason = "" if event.reason is None else f": {event.reason}"
    return f"{event.event}{late}{reason}"


def main() -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with Queue("example-payments", events=True, backoff=backoff.fixed(0.05)) as queue:
            audit = queue.events.group("audit")  # starts with new entries
            names = ("ann", "ben", "nobody")
            sent = queue.send_many([Outgoing({"customer": name}, delay=0.05) for name in names])
            Consumer(queue, charge).run(max_messages=4)

            alarms: list[str] = []

            def watch(record: Record) -> None:
                event = Event.of(record)
                if event.event == "died":
                    alarms.append(f"{event.id}: {event.reason}")

            # In production: delayq consume --topic example-payments --ledger --group audit …
            TopicConsumer(audit, watch).drain()
            histories = [queue.history(message.id) for message in sent]
    for name, history in zip(names, histories, strict=True):
        print(f"{name}: {'; '.join(map(described, history))}")
    print(f"alarms: {len(alarms)}, {alarms[0].partition(': ')[2]}")
    return int(len(alarms) != 1 or [history[-1].event for history in histories] != ["acked", "acked", "died"])


if __name__ == "__main__":
    raise SystemExit(main())
