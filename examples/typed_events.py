#!/usr/bin/env python3
"""Handle a shop's events, each with its own type, and count them in middleware.

The handler's annotation lists the accepted types, `Paid` and `Shipped`. msgspec tells them apart by a tag in the
payload. Any other payload, for example from an outdated producer, becomes a dead letter that names the wrong field, and
the handler never sees it. Middleware around every delivery counts the results for each tenant.

    python examples/typed_events.py

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if every
event ended as expected.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from collections import Counter
from decimal import Decimal

import msgspec

from delayq import Consumer, Message, Middleware, Outgoing, Queue, Reject


class Paid(msgspec.Struct, tag=True):
    order: int
    amount: Decimal  # sent as text, so it stays exact


class Shipped(msgspec.Struct, tag=True):
    order: int
    at: dt.datetime
    parcels: int = 1  # a field that older producers don't send


around = Middleware()
endings: Counter[tuple[str, str]] = Counter()


@around.before_send
def stamp(outgoing: Outgoing) -> Outgoing:
    """Add the tenant to the headers of each event."""
    return msgspec.structs.replace(outgoing, headers={"tenant": "tea-shop", **(outgoing.headers or {})})


@around.after_delivery
def count(message: Message, error: BaseException | None) -> None:
    endings[message.headers["tenant"], type(error).__name__ if error else "done"] += 1


events = Queue("example-events", middleware=around)


@events.handler
def note(message: Message[Paid | Shipped]) -> None:
    match message.payload:
        case Paid(order, amount) if amount <= 0:
            raise Reject(f"order {order} is paid with {amount}")
        case Paid(order, amount):
            print(f"order {order} is paid: {amount}")
        case Shipped(order, at, parcels):
            print(f"order {order} is shipped on {at:%A} in {parcels} parcel{'s' * (parcels > 1)}")


def main() -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with events:
            events.send(Paid(1, Decimal("12.10")))
            events.send(Shipped(1, dt.datetime(2026, 12, 24, 18, tzinfo=dt.UTC), parcels=2))
            events.send({"type": "Shipped", "order": 2, "at": "2026-12-28T08:00:00Z"})  # parcels is 1 by default
            events.send(Paid(3, Decimal(0)), headers={"tenant": "coffee-shop"})
            events.send({"type": "Paid", "order": "four", "amount": "1"})
            Consumer(events, concurrency=1).drain()
            letters = sorted((letter.reason or "", letter.error or "") for letter in events.dead.list())
    for reason, error in letters:
        print(f"dead: {reason}: {error}")
    for (tenant, ending), number in sorted(endings.items()):
        print(f"{tenant}: {number} {ending}")
    expected = {("tea-shop", "done"): 3, ("tea-shop", "PayloadMismatch"): 1, ("coffee-shop", "Reject"): 1}
    return int(endings != expected)


if __name__ == "__main__":
    raise SystemExit(main())
