"""The backend for Django's tasks: on each version of Django, and on each database."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.django_sites import NO_PYTHON, SITE, DjangoSite, framework_tests, postgresql, python
from tests.harness.servers import RedisServer

pytestmark = [pytest.mark.full, pytest.mark.same_on_all_servers]

Sites = Callable[..., DjangoSite]
NEWEST = "6.1"


@pytest.fixture
def sites(tmp_path: Path, redis_server: RedisServer) -> Sites:
    """``sites(version, postgresql)``: a site with its own databases."""
    return lambda version=NEWEST, socket=None: DjangoSite(version, tmp_path, redis_server.url, socket)


@pytest.fixture(scope="module")
def postgresql_socket() -> Iterator[Path]:
    with postgresql() as socket:
        yield socket


def test_python_for_django_is_there():
    """It fails where there is none: these tests are never skipped."""
    assert python(), NO_PYTHON


@pytest.mark.parametrize("version", ["6.1", "6.0", "5.2"])
def test_backend_on_sqlite(sites: Sites, version: str):
    assert_passed(sites(version).manage("test", "shop"))


def test_backend_on_postgresql(sites: Sites, postgresql_socket: Path):
    assert_passed(sites(NEWEST, postgresql_socket).manage("test", "shop"))


def test_tests_of_django_itself(sites: Sites):
    site = sites()
    site.env["PYTHONPATH"] = str(framework_tests())
    assert_passed(site.manage("test", "framework"))


def assert_passed(output: str) -> None:
    """Check that tests have run, and that all have passed."""
    ran = re.search(r"^Ran (\d+) tests? in", output, re.MULTILINE)
    assert int(ran[1] if ran else 0) > 20, output
    assert re.search(r"^OK\b", output, re.MULTILINE), output


ENQUEUE = "from shop import tasks\nprint({}.enqueue({}).id)"


@pytest.mark.parametrize("options", [[], ["--processes", "2"], ["--pool", "process"]], ids=" ".join)
def test_command_consumes_the_queues_of_the_settings(sites: Sites, options: list[str]):
    site = sites()
    site.manage("migrate", "--verbosity", "0")
    first = site.shell(ENQUEUE.format("tasks.add", "1, c=5")).split()[-1]
    second = site.shell(ENQUEUE.format("tasks.mail", "'me'")).split()[-1]
    for names in [["default"], ["emails"]] if options else [[]]:
        site.manage("delayq", "consume", *names, "--burst", *options)
    assert json.loads(site.manage("delayq", "result", "default", first).splitlines()[-1]) == [1, 1, [], 5, {}]
    assert json.loads(site.manage("delayq", "result", "emails", second).splitlines()[-1]) == "me 0"


def test_commands_use_the_settings(sites: Sites):
    site = sites()
    one = site.shell(ENQUEUE.format("tasks.add", "1")).split()[-1]
    assert "default" in site.manage("delayq", "stats")
    assert "no consumer" in site.manage("delayq", "why", "default", one)
    assert "'nope' is not in QUEUES" in site.manage("delayq", "consume", "nope", code=2)
    assert "QUEUES is empty" in site.manage("delayq", "--backend", "any", "consume", code=2)
    assert "'nope'" in site.manage("delayq", "--backend", "nope", "stats", code=2)
    site.manage("delayq", "send", "plain", "for a program", "--create")
    site.manage("delayq", "consume", "plain", "--burst", "--exec", "cat > exec.txt")
    assert "for a program" in (site.folder / "exec.txt").read_text()
    assert "no issues" in site.manage("check")


def test_consumer_stops_in_good_order(sites: Sites):
    site = sites()
    site.manage("migrate", "--verbosity", "0")
    task = site.shell(ENQUEUE.format("tasks.wait", "10")).split()[-1]
    command = [site.python, str(SITE / "manage.py"), "delayq", "consume", "--log-format", "json"]
    with (site.folder / "log").open("w") as log:
        consumer = subprocess.Popen(command, env=site.env, cwd=site.folder, stderr=log)
    try:
        until(lambda: json.loads(site.manage("delayq", "show", "default", task, "--json"))["state"] == "unack")
    finally:
        consumer.send_signal(signal.SIGTERM)
        code = consumer.wait(60)
    assert code == 0, (site.folder / "log").read_text()
    assert int(site.manage("delayq", "result", "default", task)) == consumer.pid


def until(is_true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.1)


LOGIN = """
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
for name in ("boss", "joe"):
    user = User.objects.create_user(name, is_staff=name == "boss")
    session = SessionStore()
    session[SESSION_KEY] = user.pk
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    print(session.session_key)
"""
SERVERS = {
    "asgi": ["-m", "uvicorn", "asgi:application", "--log-level", "warning", "--uds"],
    "wsgi": ["-m", "gunicorn", "wsgi:application", "--log-level", "warning", "--threads", "4", "--bind"],
}


@pytest.fixture(params=["asgi", "wsgi"])
def served(request: pytest.FixtureRequest, sites: Sites) -> Iterator[tuple[DjangoSite, str, dict[str, httpx.Client]]]:
    """The site, how it is served, and a client of each user: "" has not logged in."""
    site = sites()
    site.manage("migrate", "--verbosity", "0")
    keys = site.shell(LOGIN).split()[-2:]
    socket = site.folder / "s"
    address = str(socket) if request.param == "asgi" else f"unix:{socket}"
    command = [site.python, *SERVERS[request.param], address]
    with contextlib.ExitStack() as stack:
        server = subprocess.Popen(command, cwd=SITE, env=site.env)
        stack.callback(server.wait, 30)
        stack.callback(server.terminate)
        until(socket.exists)
        clients = {}
        for name, key in zip(("", "boss", "joe"), ("", *keys), strict=True):
            transport = httpx.HTTPTransport(uds=str(socket), retries=5)
            cookies = {"sessionid": key} if key else {}
            client = httpx.Client(transport=transport, base_url="http://site", cookies=cookies, timeout=30)
            clients[name] = stack.enter_context(client)
        yield site, request.param, clients


def test_dashboard_is_behind_the_login_of_staff(served: tuple[DjangoSite, str, dict[str, httpx.Client]]):
    site, kind, clients = served
    anonymous = clients[""].get("/a/queues/")
    assert (anonymous.status_code, anonymous.headers["location"]) == (302, "/admin/login/?next=/a/queues/")
    assert clients[""].get("/a/queues/api/v1/servers").status_code == 401
    assert clients[""].post("/a/queues/").status_code == 401
    assert clients["joe"].get("/a/queues/").status_code == 403

    task = site.shell(ENQUEUE.format("tasks.add.using(queue_name='a.b/c')", "1, secret='swordfish'")).split()[-1]
    boss = clients["boss"]
    overview = boss.get("/a/queues/")
    assert overview.status_code == 200
    assert "default-src 'none'" in overview.headers["content-security-policy"]
    paths = re.findall(r'(?:href|src)="(/a/queues/[^"#]+)"', overview.text)
    assert len(paths) > 5
    for path in dict.fromkeys(paths):
        assert boss.get(path).status_code == 200, path
    queue = next(path for path in paths if "a.b%252Fc" in path or "a.b%2Fc" in path or path.endswith("a.b/c"))
    message = re.search(r'href="([^"?]+/messages/[^"?]+)"', boss.get(f"{queue}/messages").text)
    assert message is not None
    shown = boss.get(message[1]).text
    assert task in shown
    assert "secret" in shown
    assert "swordfish" not in shown

    page = boss.get(queue)
    stream = re.search(r'data-stream="([^"]+)"', page.text)
    assert stream is not None
    path = stream[1].replace("&amp;", "&")
    if kind == "wsgi":
        refused = boss.get(path)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "3600")
    else:
        with boss.stream("GET", path) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert next(answer.iter_text()).startswith(("data:", "event:"))


def test_dashboard_acts_for_staff(served: tuple[DjangoSite, str, dict[str, httpx.Client]]):
    site, _, clients = served
    site.shell(ENQUEUE.format("tasks.add", "1"))
    boss = clients["boss"]
    [queue] = set(re.findall(r'href="([^"]+/queues/default)"', boss.get("/a/queues/").text))
    page = boss.get(queue).text
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None
    headers = {"origin": "http://site"}
    assert boss.post(f"{queue}/pause", data={"csrf": "wrong"}, headers=headers).status_code == 403
    answer = boss.post(f"{queue}/pause", data={"csrf": token[1]}, headers=headers)
    assert answer.status_code == 303, answer.text
    assert "paused" in site.manage("delayq", "stats", "default")
