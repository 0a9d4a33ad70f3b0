"""Fixtures: the same topic on a real Redis, through each kind of client and in both APIs, and in memory."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import fakeredis
import pytest
import redis
from redis import asyncio as async_redis

from delayq import Topic, aio
from delayq.aio.topic_group import Group as AsyncGroup
from tests.conftest import emptied
from tests.harness.kinds import give_kinds
from tests.harness.servers import KNOWN_VERSIONS, PATIENT, RedisServer

# Further kinds, for `make test-all`: decoded replies, RESP3, shards, older servers, fakeredis.
VARIANTS: dict[str, dict[str, Any]] = {
    "redis-resp3-decoding-6.2": {"protocol": 3, "decode_responses": True},
    "redis-7.0-shards": {},
    "aio-resp3-decoding-valkey-9.1-shards": {"protocol": 3, "decode_responses": True},
    "fakeredis": {},
}
START = 1_700_000_000_000


class Now:
    """The time that delayed records use, ms."""

    def __init__(self) -> None:
        self.ms = START

    def __call__(self) -> int:
        return self.ms

    def later(self, seconds: float) -> None:
        """Let seconds pass."""
        self.ms += int(seconds * 1000)


class Awaited:
    """A topic or a group of the async API; each method is awaited when it is called."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self.target = target
        self.runner = runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.target, name)
        if inspect.isasyncgenfunction(value):
            return lambda *args, **options: iter(self.runner.run(_listed(value(*args, **options))))
        if inspect.iscoroutinefunction(value):
            return lambda *args, **options: self._of(self.runner.run(value(*args, **options)))
        return value

    def _of(self, result: Any) -> Any:
        return Awaited(result, self.runner) if isinstance(result, AsyncGroup) else result


async def _listed(records: Any) -> list[Any]:
    return [record async for record in records]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    give_kinds(metafunc, VARIANTS)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> RedisServer | None:
    """The emptied server: of the version in the name of the kind, or of the default version."""
    if kind == "fakeredis":
        return None
    named = [version for version in KNOWN_VERSIONS if f"-{version}" in kind]
    version = named[0] if named else request.getfixturevalue("default_version")
    return emptied(request, request.getfixturevalue("shared_server")(version))


@pytest.fixture
def client(server: RedisServer | None) -> Iterator[redis.Redis]:
    """A client for looking behind the topic."""
    with fakeredis.FakeRedis(server=fakeredis.FakeServer()) if server is None else server.client() as client:
        yield client


@pytest.fixture
def now() -> Now:
    return Now()


Make = Callable[..., Topic]


@pytest.fixture
def make(kind: str, client: redis.Redis, server: RedisServer | None, now: Now) -> Iterator[Make]:
    """``make(**options)``: a topic; in the async API, its calls are awaited for the test."""
    made: list[Any] = []
    shared: Any = client
    runner = asyncio.Runner() if kind.startswith("aio") else None
    if runner:
        assert server is not None
        shared = async_redis.from_url(server.url, **PATIENT | VARIANTS.get(kind, {}))
    elif server:
        shared = server.client(**VARIANTS.get(kind, {}))

    def make(name: str = "orders", **options: Any) -> Any:
        given = {"shards": 3 if kind.endswith("shards") else 1, "clock": now, "redis": shared} | options
        made.append(Awaited(aio.Topic(name, **given), runner) if runner else Topic(name, **given))
        return made[-1]

    yield make
    for topic in made:
        topic.close()
    if runner:
        runner.run(shared.aclose())
        assert asyncio.all_tasks(runner.get_loop()) == set()
        runner.close()
    elif shared is not client:
        shared.close()


@pytest.fixture
def topic(make: Make) -> Topic:
    return make()
