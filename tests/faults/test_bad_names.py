"""Every argument of the public API that is a name is checked: methods and constructors, also new ones."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from itertools import product
from types import ModuleType
from typing import Any

import pytest
import redis

import delayq
from delayq import aio, errors
from tests.harness.servers import RedisServer

NAMES = {"name", "prefix", "id", "ids", "consumer", "group", "to"}
BAD = {
    "number": 5,
    "bytes": b"a",
    "empty": "",
    "blank": " ",
    "long": "x" * 100_000,
    "escape": "a\x1b[31m",
    "line": "a\nb",
}
TYPES = {"number", "bytes"}
FOREIGN = {("Group.remove_consumer", "name")}  # another program may have given its consumer any name
SURELY = {
    "payload": "x",
    "messages": [],
    "when": "* * * * *",
    "plan": "* * * * *",
    "delay": 1,
    "consumer": "c",
    "name": "a",
    "id": "a",
}


def parts(api: ModuleType, client: Any, run: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
    """Return what makes each object with such arguments, and their methods."""
    queue, topic = api.Queue("jobs", redis=client), api.Topic("news", redis=client)
    group = run(topic.group("readers"))
    made: dict[str, Callable[..., Any]] = {
        "Queue": lambda **given: api.Queue(**{"name": "a"} | given, redis=client),
        "Topic": lambda **given: api.Topic(**{"name": "a"} | given, redis=client),
        "Consumer": lambda name: api.Consumer(queue, print, name=name),
        "TopicConsumer": lambda name: api.TopicConsumer(group, print, name=name),
        "queues": lambda prefix: api.queues(prefix=prefix, redis=client),
    }
    for held in (queue, topic, group, queue.dead, queue.schedules):
        for name, method in inspect.getmembers(held, inspect.ismethod):
            if not name.startswith("_"):
                made[f"{type(held).__name__}.{name}"] = method
    record = delayq.Record("news", "1-0", [])
    return {
        **made,
        "Group.bury": lambda consumer: group.bury(record, consumer),
        "Queue.cron": lambda name: cron(queue, name),
        "Queue.task": lambda name: task(queue, name),
    }


def cron(queue: Any, name: object) -> None:
    queue.cron("* * * * *", name=name)(lambda _message: None)


def task(queue: Any, name: object) -> None:
    queue.task(name=name)(lambda: None)


def cases(api: ModuleType, client: Any, run: Callable[[Any], Any]) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    for what, call in parts(api, client, run).items():
        parameters = inspect.signature(call).parameters
        made = {"Queue": ["name", "prefix"], "Topic": ["name", "prefix"]}.get(what, [])
        for parameter in made or NAMES & parameters.keys():
            others = {
                name: SURELY[name]
                for name, each in parameters.items()
                if each.default is each.empty and name != parameter and each.kind is each.POSITIONAL_OR_KEYWORD
            }

            def bad(value: object, call: Any = call, others: Any = others, parameter: str = parameter) -> Any:
                return call(**others, **{parameter: value})

            yield what, parameter, bad


@pytest.mark.parametrize("api", [delayq, aio], ids=["blocking", "aio"])
def test_bad_name_is_refused_by_name_and_changes_nothing(
    api: ModuleType, redis_server: RedisServer, subtests: pytest.Subtests
):
    with redis_server.client() as client, asyncio.Runner() as runner:
        used = client if api is delayq else redis.asyncio.Redis(unix_socket_path=str(redis_server.socket))

        def run(result: Any) -> Any:
            return runner.run(result) if inspect.iscoroutine(result) else result

        given = list(cases(api, used, run))
        before = client.keys("*")
        for (what, parameter, call), (kind, value) in product(given, BAD.items()):
            is_foreign = (what, parameter) in FOREIGN and kind not in TYPES
            with subtests.test(f"{what} {parameter} {kind}"):
                with pytest.raises(errors.UnknownConsumer if is_foreign else errors.InvalidInput) as caught:
                    run(call(value))
                assert len(str(caught.value)) < 1200
                assert not {"\x1b", "\n"} & set(str(caught.value))
                assert client.keys("*") == before
        if api is aio:
            run(used.aclose())
    assert len({(what, parameter) for what, parameter, _ in given}) > 30
