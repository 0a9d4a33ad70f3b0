"""No text shows a password, in whatever form and place a user gives it."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import pytest
from delayq.cli.app import MODULES, main
from delayq.cli.connection import ServerOptions
from delayq.cli.exporter import address as label
from delayq.cli.options import ExampledCommand
from hypothesis import given
from hypothesis import strategies as st

from delayq import Queue, Topic, aio, queues, web
from delayq.errors import DelayqError, InvalidURL
from delayq.spark.redis_options import RedisOptions
from delayq.transport import clients, open_client_async, retry_async
from delayq.transport.url import SETTINGS, check, redact
from delayq.web.servers import servers_of
from tests.cli import conftest
from tests.cli.conftest import Invoke, Run
from tests.conftest import StartServer
from tests.harness.hostile import examples
from tests.harness.servers import RedisServer
from tests.web.conftest import Client

environment, invoke, server, delayq = conftest.environment, conftest.invoke, conftest.server, conftest.delayq

MARK = "Zq9xVw7KpL3m"  # in each password here; no part of it is in any other text
SHOWN = 6  # a part of so many characters counts as shown

MALFORMED = {
    "azure": "cache.example.org:6380,password={},ssl=True,abortConnect=False",
    "azure-reordered": "password={},ssl=True,cache.example.org:6380",
    "azure-spaces": "cache.example.org:6380, password = {}, ssl = True",
    "azure-scheme": "redis://cache.example.org:6380,password={},ssl=True",
    "azure-tls-scheme": "rediss://cache.example.org:6380,password={},ssl=True,abortConnect=False",
    "azure-lines": "cache.example.org:6380\npassword={}\nssl=True",
    "server": "server=127.0.0.1;password={}",
    "server-first": "password={};server=127.0.0.1:1",
    "semicolons": "redis://127.0.0.1:1;password={}",
    "semicolons-after-database": "redis://127.0.0.1:1/0;password={}",
    "semicolons-after-setting": "redis://127.0.0.1:1?socket_timeout=5;password={}",
    "semicolons-and-at": "redis://127.0.0.1:1;password=a@{}",
    "comma-and-at": "redis://127.0.0.1:1,password=a@{}",
    "comma-after-host": "redis://127.0.0.1:1,{}",
    "comma-after-database": "redis://127.0.0.1:1/0,{}",
    "sentinel-commas": "redis+sentinel://127.0.0.1:1,password={}/service",
    "sentinel-service": "redis+sentinel://127.0.0.1:1/service;password={}",
    "sentinel-database": "redis+sentinel://127.0.0.1:1/service/{}",
    "cluster-commas": "redis+cluster://127.0.0.1:1,password={}",
    "cluster-database": "redis+cluster://127.0.0.1:1/{}",
    "redis-cli-url": "redis-cli -u redis://default:{}@127.0.0.1:1",
    "redis-cli-tls": "redis-cli --tls -u redis://default:{}@127.0.0.1:1",
    "redis-cli-words": "redis-cli -h 127.0.0.1 -p 1 -a {}",
    "redis-cli-variable": "REDISCLI_AUTH={} redis-cli -h 127.0.0.1",
    "words": "-h 127.0.0.1 -a {}",
    "variable": "REDIS_URL=redis://:{}@127.0.0.1:1",
    "variable-quoted": "REDIS_URL='redis://:{}@127.0.0.1:1'",
    "export": 'export REDIS_URL="rediss://:{}@127.0.0.1:1"',
    "yaml": "url: redis://:{}@127.0.0.1:1",
    "yaml-password": "password: {}",
    "json": '{{"host": "127.0.0.1", "password": "{}"}}',
    "quotes": '"redis://:{}@127.0.0.1:1"',
    "apostrophes": "'redis://:{}@127.0.0.1:1'",
    "backticks": "`redis://:{}@127.0.0.1:1`",
    "brackets": "<redis://:{}@127.0.0.1:1>",
    "half-quoted": "redis://:{}@127.0.0.1:1'",
    "no-scheme": "127.0.0.1:1 {}",
    "no-scheme-login": "default:{}@127.0.0.1:1",
    "no-scheme-password": ":{}@127.0.0.1:1",
    "only-password": "{}",
    "one-slash": "redis:/:{}@127.0.0.1:1",
    "no-slashes": "redis::{}@127.0.0.1:1",
    "three-slashes": "redis:///:{}@127.0.0.1:1",
    "other-scheme": "http://user:{}@127.0.0.1",
    "scheme-in-capitals": "REDIS://:{}@127.0.0.1:1",
    "jdbc": "jdbc:redis://127.0.0.1:1?password={}",
    "jdbc-login": "jdbc:redis://user:{}@127.0.0.1:1",
    "encoded-as-a-whole": "redis%3A%2F%2F%3A{}%40127.0.0.1%3A1",
    "encoded-twice": "redis%253A%252F%252F%253A{}%2540127.0.0.1",
    "encoded-login": "redis://%3A{}%40127.0.0.1:1",
    "encoded-at": "redis://user:{}%40127.0.0.1",
    "no-at": "redis://user:{}",
    "no-at-with-database": "redis://:{}/0",
    "no-at-with-setting": "redis://:{}?db=0",
    "no-user-no-at": "redis://{}=",
    "slash": "redis://:{}/b@127.0.0.1:1",
    "slash-first": "redis://:12/{}@127.0.0.1:1",
    "slash-without-at": "redis://user:123/{}",
    "question": "redis://:{}?b@127.0.0.1:1",
    "question-first": "redis://:12?{}@127.0.0.1:1",
    "question-without-at": "redis://user:123?{}",
    "hash": "redis://:{}#b@127.0.0.1:1",
    "hash-first": "redis://:12#{}@127.0.0.1:1",
    "at-and-slash": "redis://:a@{}/b@127.0.0.1:1",
    "at-and-question": "redis://:a@{}?b@127.0.0.1:1",
    "at-and-hash": "redis://:a@{}#b",
    "space-first": "redis://:12 {}",
    "line-break": "redis://:12\n{}",
    "fragment": "redis://127.0.0.1:1#{}",
    "database": "redis://127.0.0.1:1/{}",
    "databases": "redis://127.0.0.1:1/0/{}",
    "port": "redis://127.0.0.1:{}",
    "setting-without-value": "redis://127.0.0.1:1?{}",
    "setting-with-empty-value": "redis://127.0.0.1:1?{}=",
    "unknown-setting": "redis://127.0.0.1:1?auth={}",
    "misspelt-setting": "redis://127.0.0.1:1?pasword={}",
    "setting-of-others": "redis://127.0.0.1:1?ssl={}",
    "ampersand": "redis://127.0.0.1:1?password=a&{}",
    "ampersand-and-equals": "redis://127.0.0.1:1?password=a&{}=b",
    "wrong-value-after-password": "redis://127.0.0.1:1?password={}&db=x",
    "two-passwords": "redis://:{}@127.0.0.1:1?password={}",
    "unix-login-after-slashes": "unix:///:{}@/run/none.sock",
    "unix-password-after-slashes": "unix:///{}@run/none.sock",
    "unix-encoded-login": "unix:///%3A{}%40/run/none.sock",
    "unix-portal": "unix:///run/none.sock;password={}",
    "unix-setting": "unix:///run/none.sock?socket_keepalive={}",
    "unix-host": "unix://:{}@run/none.sock",
    "embedded-login": "embedded://user:{}@/store",
    "embedded-login-after-slashes": "embedded:///:{}@/store",
    "embedded-setting": "embedded:///store?password={}",
}
PASSWORDS = {name for name in SETTINGS if name.endswith("password")}
NAMES = {"client_name", *(name for name in SETTINGS if name.endswith(("username", "certs", "path", "file")))}
SETTING = {f"setting-{name}": f"rediss://127.0.0.1:1?{name}={{}}" for name in SETTINGS if name not in NAMES | PASSWORDS}
"""In the place of a number or a word of a few, where any other text is not shown."""

WELL_FORMED = {
    "password": "redis://:{}@127.0.0.1:1/0",
    "user": "redis://user:{}@localhost:1",
    "tls": "rediss://user:{}@127.0.0.1:1?ssl_password={}",
    "in-a-setting": "redis://127.0.0.1:1?username=user&password={}",
    "sentinel": "redis+sentinel://user:{}@127.0.0.1:1,127.0.0.1:2/service/0?sentinel_password={}",
    "cluster": "redis+cluster://user:{}@127.0.0.1:1",
    "unix": "unix://user:{}@/run/none.sock",
    "in-the-place-of-the-user": "redis://{}@127.0.0.1:1",
    "without-a-colon": "redis://{}:@127.0.0.1:1",
    "other-characters": "redis://:a;b,c d{}@127.0.0.1:1",
    "at": "redis://:a@b{}@127.0.0.1:1",
}
FORMS = MALFORMED | SETTING | WELL_FORMED
AMBIGUOUS = {
    FORMS["unix-password-after-slashes"]: "/",  # a path with an @ in a later part
    FORMS["in-the-place-of-the-user"]: ":",  # a user with a password
    FORMS["without-a-colon"]: ":",
    **{
        FORMS[name]: "@" for name in FORMS if name.startswith(("no-at", "space-", "line-", "comma-after", "port"))
    },  # then a host
}
"""Characters with which a form is another one, whose user or path is shown."""

SIGNS = "/?#@:%&=;, '\"\n\\{}[]<>+"


def parts(secret: str) -> set[str]:
    """What must not be in a text: each part of a password, as it is and percent-encoded."""
    return {
        text[at : at + SHOWN]
        for text in (secret, quote(secret, safe=""), "".join(f"%{ord(char):02X}" for char in secret))
        for at in range(len(text) - SHOWN + 1)
    }


PARTS = parts(MARK)


def leaks(text: str) -> list[str]:
    return sorted(part for part in PARTS if part in text)


def texts(error: BaseException | None) -> Iterator[str]:
    """All that a program may show of an error, with the causes that a traceback leaves out."""
    if error is not None:
        yield "".join(traceback.format_exception(error))
        yield f"{error} {error!r} {error.args}"
        yield from texts(error.__cause__)
        yield from texts(error.__context__)


def shown(*calls: Callable[[], Any]) -> str:
    """What calls return or raise, as text."""
    found: list[str] = []
    for call in calls:
        try:
            result = call()
            found.append(f"{result!r} {result}")
        except (DelayqError, click.ClickException) as error:
            found += texts(error)
    return "\n".join(found)


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


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif command is not None:
            yield (*path, name), command


MISPLACED = ["azure", "server", "redis-cli-url", "redis-cli-words", "variable", "json", "no-scheme-login", "user"]


@pytest.mark.parametrize(
    "name", [MISPLACED[0], *(pytest.param(each, marks=pytest.mark.full) for each in MISPLACED[1:])]
)
def test_no_command_shows_a_url_in_the_place_of_another_word(
    name: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
):
    url, offenders = FORMS[name].format(*[MARK] * 2), {}
    monkeypatch.setattr(ExampledCommand, "invoke", lambda *_: None)  # only the words are read
    monkeypatch.setattr(click.Command, "invoke", lambda *_: None)
    lines = [(url,), (url, "stats"), ("exporter", "--url", "redis://:a", f"b{MARK}@127.0.0.1:1")]
    for path, command in commands(main):
        lines += [(*path, *[word] * count) for count in (1, 2, 3, 5) for word in (url, url * 40)]
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag:
                lines += [
                    (*path, option.opts[0], url),
                    (*path, f"{option.opts[0]}={url}"),
                    (*path, option.opts[0], url * 40),
                ]
    for line in lines:
        done = invoke(*line)
        if leaks(done.output + done.stderr):
            offenders[line] = done.output
    assert offenders == {}
    assert len(lines) > len(MODULES)


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
