"""A web application with FastAPI: one route sends a message, another one waits for what a task returns.

pip install fastapi uvicorn, and delayq with the extra embedded
cd examples
uvicorn fastapi_app:app                         the routes, and for development a consumer in the same process
CONSUMER=apart uvicorn fastapi_app:app          in production: the routes alone,
delayq consume fastapi_app:travel               and consumers apart, so that both are restarted and scaled by themselves

curl -d '{"number": 7, "email": "ann@example.org"}' -H 'Content-Type: application/json' localhost:8000/users
curl localhost:8000/fares/Rome
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from delayq import ResultTimeout, ServerError, TaskFailed
from delayq.aio import Consumer, Message, Queue

travel = Queue("travel")
FARES = {"Paris": 79, "Rome": 129}


class User(BaseModel):
    number: int
    email: str


@travel.handler
async def welcome(message: Message[User]) -> None:
    print("mail to", message.payload.email, flush=True)  # in place of a mail server


@travel.task(results=60, max_retries=0)
async def fare(city: str) -> int:
    return FARES[city]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(travel)
        if os.environ.get("CONSUMER") != "apart":
            consumer = Consumer(travel, shutdown_timeout=20)
            await consumer.start()
            stack.push_async_callback(consumer.stop)  # lets running handlers finish, before the queue is closed
        yield


app = FastAPI(lifespan=lifespan)


def queue() -> Queue:
    """The queue as a dependency, which a test may override (`app.dependency_overrides`)."""
    return travel


@app.exception_handler(ServerError)
async def unavailable(_: Request, error: ServerError) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status_code=503, headers={"Retry-After": "5"})


@app.post("/users", status_code=202)
async def sign_up(user: User, to: Annotated[Queue, Depends(queue)]) -> dict[str, str]:
    # One mail if the client tries again while it waits. Ids are shown, in logs too: they are no place for an address.
    sent = await to.send(user, id=f"welcome-{user.number}")
    return {"id": sent.id}


@app.get("/fares/{city}")
async def price(city: str) -> dict[str, int]:
    sent = await fare.send(city)
    try:
        return {"fare": await sent.result(timeout=10)}
    except TaskFailed as error:
        raise HTTPException(404, f"no fare to {city}") from error
    except ResultTimeout as error:
        raise HTTPException(504, "no consumer has answered in time") from error
