"""No text shows a password, in whatever form and place a user gives it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from delayq.cli.connection import ServerOptions
from delayq.cli.exporter import address as label
from hypothesis import given
from hypothesis import strategies as st

import delayq as blocking
from delayq import Queue, Topic, aio, lake, metrics, queues, telemetry, testing, web
from delayq.errors import InvalidURL
from delayq.model.server_url import check, redact
from delayq.spark.redis_options import RedisOptions
from delayq.transport import clients, open_client_async, retry_async
from delayq.web.servers import servers_of
from tests.cli import conftest
from tests.cli.conftest import Invoke, Run
from tests.conftest import StartServer
from tests.harness.hostile import examples
from tests.harness.passwords import (
    AMBIGUOUS,
    FORMS,
    MALFORMED,
    MARK,
    MISPLACED,
    SETTING,
    SIGNS,
    WELL_FORMED,
    leaks,
    shown,
    texts,
)
from tests.harness.servers import RedisServer
from tests.web.conftest import Client

environment, invoke, server, delayq = conftest.environment, conftest.invoke, conftest.server, conftest.delayq


@pytest.fixture(autouse=True)
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is away is not tried again."""
    monkeypatch.setattr(clients, "RETRIES", 0)
    monkeypatch.setattr(retry_async, "RETRIES", 0)
    monkeypatch.setitem(clients.DEFAULTS, "socket_connect_timeout", 20)


def uses_of_queues(url: str) -> list[Callable[[], Any]]:
    """The library with a URL, in both APIs: what it says of objects, and of a server that is away."""

    async def use(queue: aio.Queue) -> None:
        async with queue:
            await queue.stats()

    def close(thing: Queue | Topic) -> str:
        with thing:
            return repr(thing)

    return [
        lambda: close(Queue("emails", url=url)),
        lambda: close(Topic("orders", url=url)),
        lambda: aio.Queue("emails", url=url),
        lambda: Queue("emails", url=url).stats(),
        lambda: Topic("orders", url=url).publish("x"),
        lambda: asyncio.run(use(aio.Queue("emails", url=url))),
        lambda: queues(url=url),
        lambda: asyncio.run(aio.queues(url=url)),
    ]


def uses_of_servers(url: str) -> list[Callable[[], Any]]:
    """What shows a URL without a connection."""
    return [
        lambda: redact(url),
        lambda: check(url),
        lambda: RedisOptions(url),
        lambda: ServerOptions(url, "delayq"),
        lambda: label(url),
        lambda: list(servers_of(url, "delayq")),
        lambda: list(servers_of([url, url], "delayq")),
        lambda: list(servers_of({"west": url}, "delayq")),
    ]


@pytest.mark.parametrize("name", FORMS)
def test_no_text_of_the_library_shows_a_password(name: str, caplog: pytest.LogCaptureFixture):
    url = FORMS[name].format(*[MARK] * 2)
    with caplog.at_level(logging.DEBUG):
        seen = shown(*uses_of_queues(url), *uses_of_servers(url), lambda: web.app(url))
    assert leaks(seen + caplog.text) == []


def takes_server(function: Any) -> bool:
    try:
        names = set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return False
    return bool(names & {"url", "urls", "server", "servers", "place"})


@pytest.mark.full
def test_every_public_entry_hides_the_password_of_a_server_that_works_refuses_or_ends(
    start_server: StartServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    modules = (blocking, aio, metrics, web, testing, lake, telemetry)
    found = {f"{each.__module__}.{name}" for module in modules for name, each in public(module) if takes_server(each)}
    entries: dict[str, Callable[[str], Any]] = {
        "delayq.queue.Queue": lambda url: used(blocking, url),
        "delayq.topic.Topic": lambda url: published(blocking, url),
        "delayq.queue_names.queues": lambda url: queues(url=url),
        "delayq.aio.queue.Queue": lambda url: used(aio, url),
        "delayq.aio.topic.Topic": lambda url: published(aio, url),
        "delayq.aio.queue_names.queues": lambda url: asyncio.run(aio.queues(url=url)),
        "delayq.metrics.collector.Metrics": exposed,
        "delayq.metrics.discovery.DiscoveredQueues": scraped,
        "delayq.web.app.app": pages,
    }
    assert found == entries.keys()
    server = start_server(port=True, config={"requirepass": MARK})
    at = f"127.0.0.1:{server.port}"
    works = f"redis://:{MARK}@{at}"
    for form in (
        works,
        f"redis://:wrong-{MARK}@{at}",  # refused
        f"redis://user:{MARK}@{at}",
        f"rediss://:{MARK}@{at}?socket_timeout=0.3&socket_connect_timeout=0.3",  # no TLS
        f"redis+sentinel://:{MARK}@{at}/service?sentinel_password={MARK}",
        f"redis+cluster://:{MARK}@{at}",
    ):
        for name, use in entries.items():
            with caplog.at_level(logging.DEBUG):
                seen = shown(functools.partial(use, form))
            assert leaks(seen + caplog.text) == [], (name, form)
            assert ("Traceback" in seen) <= (form != works), seen
    with Queue("emails", url=works) as queue:
        queue.stats()
        server.kill()
        assert leaks(shown(queue.stats, lambda: queue.send("x")) + caplog.text) == []
    out, err = capfd.readouterr()
    assert leaks(out + err) == []


def public(module: Any) -> list[tuple[str, Any]]:
    return [(name, getattr(module, name)) for name in getattr(module, "__all__", [])]


def used(api: Any, url: str) -> str:
    """Send, consume a message whose handler fails, and show the queue, its client, its pool and a connection."""

    def fail(_: Any) -> None:
        raise ValueError("failed")

    async def main() -> str:
        queue = api.Queue("emails", url=url, max_retries=0)
        try:
            await awaited(queue.send("x"))
            await awaited(api.Consumer(queue, fail).run(burst=True))
            client: Any = await awaited(queue._executor.connected())
            pool = client.connection_pool
            connection = await awaited(pool.get_connection())
            await awaited(pool.release(connection))
            return " ".join(map(repr, (queue, queue._executor, client, pool, connection, await awaited(queue.peek()))))
        finally:
            await awaited(queue.close())

    return asyncio.run(main())


def published(api: Any, url: str) -> str:
    async def main() -> str:
        topic = api.Topic("orders", url=url)
        try:
            await awaited(topic.publish("x"))
            group = await awaited(topic.group("billing", start="0"))
            await awaited(api.TopicConsumer(group, print).run(burst=True))
            return repr((topic, group, await awaited(topic.groups())))
        finally:
            await awaited(topic.close())

    return asyncio.run(main())


async def awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def exposed(url: str) -> bytes:
    with Queue("emails", url=url) as queue:
        return metrics.Metrics([queue]).exposition().body


def scraped(url: str) -> str:
    with ServerOptions(url, "delayq") as server, metrics.DiscoveredQueues(server) as found:
        scrape = metrics.Metrics(servers=[found])
        return f"{server} {found} {scrape} {scrape.exposition().body!r}"


def pages(url: str) -> str:
    dashboard = web.app([url, "redis://127.0.0.1:2"])  # several have names, made from their URLs
    page = Client(dashboard)
    try:
        answers = [page.get(path) for path in ("/", "/api/v1/servers")]
        return repr(dashboard) + "".join(f"{each.text} {each.headers}" for each in answers)
    finally:
        page.close(dashboard)


@pytest.mark.parametrize("name", MALFORMED | SETTING)
def test_malformed_url_is_refused_by_all(name: str):
    url = FORMS[name].format(*[MARK] * 2)
    for use in (check, open_client_async.connect):
        with pytest.raises(InvalidURL, match=r"the URL .*\*\*\*"):
            use(url)


@examples
@given(
    before=st.text(SIGNS + "a1", max_size=4),
    after=st.text(SIGNS + "a1", max_size=4),
    form=st.sampled_from([*FORMS.values()]),
    encode=st.sampled_from([str, lambda text: quote(text, safe=""), lambda text: quote(quote(text, safe=""), safe="")]),
)
def test_no_form_of_a_password_is_shown(before: str, after: str, form: str, encode: Callable[[str], str]):
    secret = encode(f"{before}{MARK}{after}".translate(str.maketrans("", "", AMBIGUOUS.get(form, ""))))
    url = form.format(*[secret] * 2)
    seen = shown(
        lambda: redact(url), lambda: check(url), lambda: RedisOptions(url), lambda: ServerOptions(url, "delayq")
    )
    if "cluster" not in url:  # it would connect
        seen += shown(lambda: open_client_async.connect(url), lambda: list(servers_of(url, "delayq")))
    assert leaks(seen) == []


def test_password_that_a_server_without_auth_repeats_is_not_shown(start_server: StartServer):
    server = start_server(port=True, config={"rename-command": "AUTH ''"})
    with Queue("emails", url=f"redis://:{MARK}@127.0.0.1:{server.port}/0") as queue:
        seen = shown(queue.stats, lambda: queue.send(1))
    assert "unknown command" in str(seen)
    assert leaks(seen) == []


def test_url_in_the_place_of_a_client_or_a_name_is_not_shown():
    url: Any = f"redis://:{MARK}@127.0.0.1:1"
    seen = shown(
        *(lambda kind=kind: kind("emails", redis=url) for kind in (Queue, Topic, aio.Queue, aio.Topic)),
        *(lambda kind=kind: kind(url) for kind in (Queue, Topic, aio.Queue, aio.Topic)),
        lambda: Queue("emails", url="redis://127.0.0.1:1", prefix=url),
        lambda: Queue("emails", url="redis://127.0.0.1:1", lake=url),
        lambda: queues(redis=url),
        lambda: servers_of({url: "redis://host"}, "delayq"),
        lambda: servers_of({f"host:1,password={MARK}": "redis://host"}, "delayq"),
        lambda: Queue("emails", url=[url]).stats(),  # type: ignore[arg-type]
    )
    assert leaks(seen) == []


@pytest.mark.parametrize("variable", ["DELAYQ_HOME", "DELAYQ_REDIS_SERVER"])
def test_url_in_the_wrong_variable_is_not_shown(variable: str, invoke: Invoke):
    for url in (f"redis://:{MARK}@127.0.0.1:1", f"host:6380,password={MARK},ssl=True"):
        done = invoke("send", "emails", "hello", env={"DELAYQ_URL": None, variable: url})
        assert (done.exit_code, leaks(done.output)) == (2, [])
        assert f"{variable} is a URL: set DELAYQ_URL to it" in done.stderr


COMMANDS = ["stats", "send emails hello", "doctor --json", "exporter --once", "consume emails --exec true --burst"]


@pytest.mark.parametrize("name", FORMS)
def test_no_command_shows_a_password(name: str, invoke: Invoke):
    url = FORMS[name].format(*[MARK] * 2)
    words = COMMANDS if name in MALFORMED else COMMANDS[:1]
    for command in words:
        for done in (
            invoke(*command.split(), "--url", url),
            invoke(*command.split(), f"--url={url}", "--url", "redis://127.0.0.1:1"),
            invoke(*command.split(), env={"DELAYQ_URL": url}),
            invoke("--url", url, *command.split()),
        ):
            assert leaks(done.output + done.stderr + "".join(texts(done.exception))) == []
    if name in MALFORMED:
        for given in (f"west={url}", url):
            for command in ("dashboard", "exporter --once"):
                done = invoke(*command.split(), "--url", given, "--url", f"east={url}")
                assert (done.exit_code, leaks(done.output)) == (2, [])


@pytest.mark.parametrize("name", WELL_FORMED)
def test_no_page_or_metric_shows_a_password(name: str, invoke: Invoke):
    url = FORMS[name].format(*[MARK] * 2)
    dashboard = web.app([url, "redis://127.0.0.1:2"])
    page = Client(dashboard)
    try:
        seen = [page.get(path) for path in ("/", "/api/v1/servers", "/api/v1/openapi.json")]
        seen += [page.get(f"/api/v1/servers/{quote(each, safe='')}") for each in servers_of([url], "delayq")]
    finally:
        page.close(dashboard)
    assert [each.status_code for each in seen[:3]] == [503, 200, 200]  # no server answers
    assert leaks("".join(f"{each.text} {each.headers}" for each in seen)) == []
    done = invoke("exporter", "--once", "--url", url, "--url", "redis://127.0.0.1:2")
    assert "delayq_server_up{" in done.stdout
    assert leaks(done.stdout + done.stderr) == []


@pytest.mark.by_lot(4)
@pytest.mark.parametrize(
    "name",
    ["azure", *(pytest.param(each, marks=pytest.mark.full) for each in (*MISPLACED[1:], "semicolons", "sentinel"))],
)
def test_no_process_shows_a_password(name: str, delayq: Run):
    url = FORMS[name].format(*[MARK] * 2)
    environment = {"DELAYQ_URL": url}
    for words in (
        ("stats",),
        ("consume", "emails", "--exec", "true", "--burst", "--log-level", "debug"),
        ("consume", "emails", "--exec", "true", "-p", "2", "--burst", "--log-format", "json", "--log-level", "debug"),
        ("dashboard", "--host", "0.0.0.0", "--token", MARK),
    ):
        done = delayq(*words, env=environment)
        assert done.returncode != 0
        assert leaks(done.stdout + done.stderr) == []


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_traceback_in_the_log_shows_no_variables(log_format: str, delayq: Run, tmp_path: Path):
    (tmp_path / "tasks.py").write_text(
        "import os\nfrom delayq import Queue\nemails = Queue('emails')\n\n@emails.handler\n"
        "def handle(message):\n    url = os.environ['SECRET']\n    raise ValueError('failed')\n"
    )
    assert delayq("send", "emails", "hello", "--max-retries", "0").returncode == 0
    done = delayq("consume", "tasks:emails", "--burst", "--log-format", log_format, env={"SECRET": MARK})
    assert "failed" in done.stderr
    assert leaks(done.stdout + done.stderr) == []


def test_server_that_refuses_a_login_does_not_repeat_it(server: RedisServer):
    seen = shown(lambda: Queue("emails", url=f"unix://user:{MARK}@{server.socket}").stats())
    assert leaks(seen) == []
    assert "check the user, the password" in seen
