"""A web application with Litestar: a route sends a message, and a consumer in the same process handles it.

pip install litestar uvicorn, and delayq with the extra embedded
cd examples
uvicorn litestar_app:app                         the route, and for development a consumer in the same process
CONSUMER=apart uvicorn litestar_app:app          in production: the route alone,
delayq consume litestar_app:mails                and consumers apart

curl -d '{"number": 7, "email": "ann@example.org"}' -H 'Content-Type: application/json' localhost:8000/users
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, post
from litestar.di import NamedDependency, Provide
from litestar.params import JSONBody

from delayq import ServerError
from delayq.aio import Consumer, Message, Queue

mails = Queue("mails")


class User(msgspec.Struct):
    """What the route takes and the handler gets: Litestar and delayq read the same types."""

    number: int
    email: str


@mails.handler
async def welcome(message: Message[User]) -> None:
    print("mail to", message.payload.email, flush=True)  # in place of a mail server


@asynccontextmanager
async def lifespan(_: Litestar) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(mails)
        if os.environ.get("CONSUMER") != "apart":
            consumer = Consumer(mails, shutdown_timeout=20)
            await consumer.start()
            stack.push_async_callback(consumer.stop)  # lets running handlers finish, before the queue is closed
        yield


async def queue() -> Queue:
    return mails


@post("/users", status_code=202)
async def sign_up(data: JSONBody[User], to: NamedDependency[Queue]) -> dict[str, str]:
    sent = await to.send(data, id=f"welcome-{data.number}")  # one mail if the client tries again while it waits
    return {"id": sent.id}


def unavailable(_: Request[Any, Any, Any], error: ServerError) -> Response[dict[str, str]]:
    return Response({"error": str(error)}, status_code=503, headers={"Retry-After": "5"})


app = Litestar(
    route_handlers=[sign_up],
    dependencies={"to": Provide(queue)},
    exception_handlers={ServerError: unavailable},
    lifespan=[lifespan],
)
