#!/usr/bin/env python3
"""Send each order to several services, which read at their own pace and fail independently.

The program publishes orders to a topic. Billing, mail and search read it, each with its own group. Once, the mail
server does not answer, and only that mail is sent again. An order without a price becomes a dead letter for billing
only.

    python examples/fan_out.py
    python examples/fan_out.py --orders 20

The topic is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if every
group has handled every order.
"""

from __future__ import annotations

import argparse
import os
import tempfile

from delayq import NewRecord, Record, Reject, Topic, TopicConsumer, backoff


def bill(record: Record) -> None:
    if record.payload["cents"] is None:
        raise Reject("no price")
    say(f"billing  {record.payload['order']}: {record.payload['cents'] / 100:.2f}")


def mail(record: Record) -> None:
    if (record.payload["order"], record.deliveries) == ("order-1", 1):
        say("mail     order-1: the server does not answer")
        raise TimeoutError("the mail server does not answer")
    say(f"mail     {record.payload['order']}: sent with delivery {record.deliveries}")


def index(record: Record) -> None:
    say(f"search   {record.payload['order']}: indexed")


def say(text: str) -> None:
    print(f"{text}\n", end="", flush=True)  # one write, because several threads print


def main() -> int:
    parser = argparse.ArgumentParser(description="Send each order to several services.")
    parser.add_argument("--orders", type=int, default=3, metavar="N", help="how many (default: 3)")
    orders = parser.parse_args().orders
    if orders < 2:
        parser.error("--orders must be 2 or more")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with Topic("example-orders") as topic:
            consumers = [
                TopicConsumer(topic.group(name, max_deliveries=5), handler, backoff=backoff.fixed(0.2))
                for name, handler in (("billing", bill), ("mail", mail), ("search", index))
            ]
            before = topic.length()
            topic.publish_many(
                NewRecord({"order": f"order-{number}", "cents": None if number == 2 else 1000 + number})
                for number in range(1, orders + 1)
            )
            # In production, each runs in its own process: delayq consume --topic orders --group mail MODULE:HANDLER
            handled = [consumer.run(max_records=orders + (consumer.group.name == "mail")) for consumer in consumers]
            dead = [letter.record.payload["order"] for letter in topic.group("billing").dead()]
            trimmed = topic.trim_acked()
            left = topic.length()
    print(
        f"{orders} orders, handled by billing, mail and search: {handled[0]}, {handled[1]} and {handled[2]} deliveries"
    )
    print(f"dead letters of billing: {', '.join(sorted(set(dead)))}; {trimmed.dropped} records trimmed, {left} left")
    return int(handled != [orders, orders + 1, orders] or trimmed.dropped != before + orders)


if __name__ == "__main__":
    raise SystemExit(main())
