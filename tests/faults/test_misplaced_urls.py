"""A URL or a connection string in the place of another word is shown nowhere: not by a command, a call or a request."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import click
import pytest
from delayq.cli.app import main

from delayq import Queue, Topic, web
from delayq.spark import session as spark_session
from delayq.web.http_server import Server
from delayq.web.routes import Page
from tests.cli import conftest
from tests.cli.conftest import Invoke
from tests.harness.passwords import FORMS, MARK, MISPLACED, leaks, shown, texts
from tests.harness.servers import RedisServer
from tests.web.conftest import Client

environment, invoke, server = conftest.environment, conftest.invoke, conftest.server

WORDS = {
    "name": "emails",
    "queue": "emails",
    "queues": "emails",
    "names": "emails",
    "targets": "emails",
    "checkpoints": "checkpoint",
    "message_id": "held",
    "ids": "held",
    "record_id": "held",
    "group_name": "billing",
    "consumer": "ann",
    "position": "0",
    "schedule_name": "daily",
    "when": "0 9 * * *",
    "payload": "hello",
    "shell": "bash",
    "table": "table",
    "folder": "folder",
    "file": "file.toml",
    "database_url": "sqlite:///outbox.db",
}
"""A word for each argument, so that the command runs and only one word is wrong."""

ENDED = {
    "consume": ["--exec", "true", "--burst"],
    "top": ["--once", "--interval", "10ms"],
    "exporter": ["--once"],
    "relay": ["--burst"],
    "topic tail": ["--wait", "10ms"],
    "topic read": ["--wait", "0"],
    "lake hydrate": ["--lake", "lake"],
    "pipeline defer": ["--lake", "lake"],
    "pipeline hydrate": ["--lake", "lake"],
    "pipeline archive": ["--to", "folder"],
    "reschedule": ["--delay", "1h"],
    "dead edit": ["--payload", "bye"],
    "cron next": [],
    "topic group move": [],
}
"""Options that a command needs, or without which it would not end."""

NOT_HERE = {"--url", "--master"}
"""The places of URLs: other tests give them."""

CHOSEN_BY_OTHERS = {
    *("message_id", "ids", "record_id", "group_name", "consumer"),
    *("--id", "--group", "--consumer", "--to", "--key"),
}
"""Where a text such as welcome:ann@example.org is meant, so that it is shown."""


DATA_SHOWN = {("cron add", "payload"), ("cron add", "--header")}
"""With --json, the added schedule is printed, with the user's data."""


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif command is not None:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(main))


def lines_of(name: str, text: str, is_id: bool, is_full: bool) -> Iterator[list[str]]:
    """Yield command lines that are right but for one word, or for all of them."""
    params = COMMANDS[name].params
    arguments = [each for each in params if isinstance(each, click.Argument)]
    words = [_word(name, each) for each in arguments]
    right = [*(each.opts[0] for each in params if each.name == "yes"), *ENDED.get(name, [])]
    as_json = ["--json"] if any(each.name == "as_json" for each in params) else []
    for place, argument in enumerate(arguments):
        if not (is_id and argument.name in CHOSEN_BY_OTHERS):
            wrong = [*words[:place], text, *words[place + 1 :]]
            yield [*right, "--", *wrong]
            if is_full and (name, argument.name) not in DATA_SHOWN:
                yield [*right, *as_json, "--", *wrong]
    needed = [word for argument, word in zip(arguments, words, strict=True) if argument.required]
    for option in params:
        if isinstance(option, click.Option) and not option.is_flag and option.opts[0] not in NOT_HERE:
            if is_id and option.opts[0] in CHOSEN_BY_OTHERS:
                continue
            printed = [] if (name, option.opts[0]) in DATA_SHOWN else as_json
            yield [*right, *printed, option.opts[0], text, "--", *needed]
            if is_full:
                yield [*right, f"{option.opts[0]}={text}", "--", *words]
                yield [*right, f"{option.opts[0]}={text * 40}", "--", *words]
    if is_full and not is_id:
        yield from ([*right, "--", *[text] * count] for count in (1, 2, 3, 5))


def _word(command: str, argument: click.Argument) -> str:
    if argument.name == "name" and command.startswith("topic"):
        return "orders"
    assert argument.name is not None
    return WORDS[argument.name]


def fill(server: RedisServer) -> None:
    """Make a queue, a topic and a schedule, so that there is something to act on."""
    with Queue("emails", url=server.url, shards=None) as queue, Topic("orders", url=server.url, shards=None) as topic:
        queue.send("hello", id="held", delay=3600)
        queue.send("hello", id="dead", max_retries=0)
        for message in queue.receive(10):
            message.reject("wrong")
        queue.schedules.add("daily", "0 9 * * *", "hello")
        topic.group("billing", start="0")
        topic.publish("hello", id="held", delay=3600)
        topic.publish("hello")
        topic.group("billing").poll("ann")


@pytest.fixture
def nothing_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start neither a web server, which would not end, nor Spark, which takes seconds."""

    def refuse(*_: Any, **__: Any) -> None:
        raise click.ClickException("no Spark here")

    monkeypatch.setattr(Server, "run", lambda *_, **__: None)
    with contextlib.suppress(ImportError):
        from delayq.cli.pipeline import spark_session as sessions  # noqa: PLC0415

        assert sessions.session is spark_session
        monkeypatch.setattr(sessions, "session", refuse)


@pytest.mark.by_lot(4)
@pytest.mark.usefixtures("nothing_served")
@pytest.mark.parametrize(
    ("name", "is_full"),
    [("user", False), *(pytest.param(name, True, marks=pytest.mark.full) for name in MISPLACED)],
)
def test_no_command_shows_a_url_in_the_place_of_another_word(
    name: str,
    is_full: bool,
    invoke: Invoke,
    server: RedisServer,
    redis_client: Any,
    caplog: pytest.LogCaptureFixture,
):
    text, offenders, count = FORMS[name].format(*[MARK] * 2), {}, 0
    lines: list[tuple[str, ...]] = [(text,), (text, "stats")]
    lines += [("exporter", "--url", "redis://:a", f"b{MARK}@127.0.0.1:1")]
    for command in [None, *COMMANDS]:
        if command is not None:
            redis_client.flushdb()
            fill(server)
            of = lines_of(command, text, is_id=name == "no-scheme-login", is_full=is_full)
            lines = [(*command.split(), *line) for line in of]
        for line in lines:
            with caplog.at_level(logging.DEBUG):
                done = invoke(*line)
            count += 1
            failure = "" if isinstance(done.exception, SystemExit | None) else "".join(texts(done.exception))
            if failure or leaks(done.output + done.stderr + caplog.text):
                offenders[line] = done.output + failure + caplog.text
            caplog.clear()
    assert offenders == {}
    assert count > 4 * len(COMMANDS)


NAMES = ["user", "azure", "redis-cli-words", "json", "variable", "no-scheme-login", "scheme-in-capitals"]
EVERYWHERE = [each for each in NAMES if each != "no-scheme-login"]


@pytest.mark.parametrize("name", NAMES)
def test_no_call_shows_a_url_in_the_place_of_a_name_or_an_id(
    name: str, server: RedisServer, caplog: pytest.LogCaptureFixture
):
    fill(server)
    text: Any = FORMS[name].format(*[MARK] * 2)
    with Queue("emails", url=server.url, shards=None) as queue, Topic("orders", url=server.url, shards=None) as topic:
        group = topic.group("billing")
        named: list[Callable[[], Any]] = [
            lambda: Queue(text, url=server.url),
            lambda: Queue("emails", url=server.url, prefix=text),
            lambda: Queue([text], url=server.url),  # type: ignore[arg-type]
            lambda: Topic(text, url=server.url),
            lambda: queue.schedules.add(text, "0 9 * * *", "x"),
            lambda: queue.schedules.remove(text),
            lambda: queue.schedules.run_now(text),
        ]
        chosen: list[Callable[[], Any]] = [
            lambda: queue.send("x", id=text),
            lambda: queue.send("x", id=text.encode()),
            lambda: queue.get(text),
            lambda: queue.why(text),
            lambda: queue.cancel(text),
            lambda: queue.reschedule(text, delay=1),
            lambda: queue.now(["waiting", text]),
            lambda: queue.dead.bury(text),
            lambda: queue.dead.requeue([text]),
            lambda: topic.publish("x", id=text, delay=5),
            lambda: topic.why(text),
            lambda: topic.cancel(text),
            lambda: topic.group(text),
            lambda: group.poll(text),
            lambda: group.remove_consumer(text),
        ]
        with caplog.at_level(logging.DEBUG):
            seen = [shown(call) for call in [*named, *(chosen if name in EVERYWHERE else ())]]
    assert [each for each in [*seen, caplog.text] if leaks(each)] == []


@pytest.mark.parametrize("name", ["user", *(pytest.param(name, marks=pytest.mark.full) for name in NAMES[1:])])
def test_no_answer_of_the_api_shows_a_url_in_the_place_of_a_name_or_an_id(name: str, server: RedisServer):
    fill(server)
    dashboard = web.app({"main": server.url})
    client = Client(dashboard)
    text = FORMS[name].format(*[MARK] * 2)
    seen, count = "", 0
    try:
        for route in (each for each in dashboard.router.routes if isinstance(each, Page)):
            for wrong in re.findall(r"\{(\w+)", route.path):
                if wrong in CHOSEN_BY_OTHERS | {"id", "group", "letter"} and name not in EVERYWHERE:
                    continue
                words = PLACES | {wrong: text}
                path = _with_words(route.path, words)
                answer = client.request(route.method, path, content=b"{}", headers={"content-type": "application/json"})
                count += 1
                if answer.status_code != 303 and leaks(answer.text + str(answer.headers)):
                    seen += f"{route.method} {path} {answer.status_code} {answer.text[-300:]}\n"
    finally:
        client.close(dashboard)
    assert seen == ""
    assert count > 100


PLACES = {
    "server": "main",
    "queue": "emails",
    "topic": "orders",
    "group": "billing",
    "id": "held",
    "schedule": "daily",
    "job": "1",
    "letter": "1-0",
    "file": "live.js",
}


def _with_words(path: str, words: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)(:name)?[^}]*\}", lambda match: in_path(words[match[1]], bool(match[2])), path)


def in_path(text: str, is_page: bool) -> str:
    """Return a word as a part of a path; pages quote it once more."""
    once = quote(text, safe="")
    return quote(once, safe="") if is_page else once
