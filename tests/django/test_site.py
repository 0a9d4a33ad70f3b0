"""A site with the backend: its commands and its consumers as processes, and its dashboard on web servers."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.conftest import SharedServer
from tests.harness.django_sites import SITE, DjangoSite
from tests.harness.servers import RedisServer

pytestmark = [pytest.mark.full, pytest.mark.same_on_all_servers]


@pytest.fixture(scope="module")
def site_of_module(
    tmp_path_factory: pytest.TempPathFactory, shared_server: SharedServer, default_version: str
) -> Iterator[DjangoSite]:
    made = DjangoSite("6.1", tmp_path_factory.mktemp("site"), shared_server(default_version).url)
    with contextlib.closing(made):
        made.manage("migrate", "--verbosity", "0")
        yield made


@pytest.fixture
def site(site_of_module: DjangoSite, redis_server: RedisServer) -> DjangoSite:  # noqa: ARG001  # which is emptied
    """A site with its databases and without messages."""
    return site_of_module


def enqueued(site: DjangoSite, *calls: str) -> list[str]:
    """Return the ids of calls, such as ``add.enqueue(1)`` of the site's tasks."""
    lines = [f"print({each}.id)" for each in calls]
    said = site.shell("\n".join(["from shop.tasks import *", "queue = add.get_backend().queue('default')", *lines]))
    return said.split()[-len(calls) :]


NOTED = """
from shop.framework import signals

def note(task_result, **_):
    print(task_result.id, task_result.status, flush=True)

signals.task_finished.connect(note)
"""
"""It tells which tasks have finished, in the process of the consumer."""


@pytest.mark.parametrize("options", [[], ["--processes", "2"], ["--pool", "process"]], ids=" ".join)
def test_command_consumes_the_queues_of_the_settings(site: DjangoSite, options: list[str]):
    """In each of its processes, also if not all that they import is in the folder of manage.py."""
    add, mail = enqueued(site, "add.enqueue(1, c=5)", "mail.using(queue_name='default').enqueue('me')")
    [other] = enqueued(site, "mail.enqueue('you')")
    names = ["default"] if options else []
    site.manage("delayq", "consume", *names, "--burst", *options, "--pythonpath", str(site.folder))
    result = partial(site.manage, "delayq", "result")
    assert json.loads(result("default", add).splitlines()[-1]) == [1, 1, [], 5, {}]
    assert json.loads(result("default", mail).splitlines()[-1]) == "me 0"
    if not options:
        assert json.loads(result("emails", other).splitlines()[-1]) == "you 0"


def test_signal_tells_of_tasks_whose_process_was_ended(site: DjangoSite):
    """Such as by the system or for their time; the signal comes from the consumer."""
    late = "queue.send({'args': ['/nowhere']}, task='shop.tasks.wait', timeout=0.1, results=60, max_retries=0)"
    died, timed_out = enqueued(site, "die.enqueue()", late)
    command = "call_command('delayq', 'consume', 'default', '--burst', '--pool', 'process', '--concurrency', '1')"
    said = site.shell(f"{NOTED}\nfrom django.core.management import call_command\n{command}")
    assert {f"{died} FAILED", f"{timed_out} FAILED"} <= set(said.splitlines())


def test_commands_use_the_settings(site: DjangoSite):
    [one] = enqueued(site, "add.enqueue(1)")
    assert "default" in site.manage("delayq", "stats")
    assert "no consumer" in site.manage("delayq", "why", "default", one)
    assert "'nope' is not in QUEUES" in site.manage("delayq", "consume", "nope", code=2)
    assert "QUEUES is empty" in site.manage("delayq", "--backend", "any", "consume", code=2)
    assert "'nope'" in site.manage("delayq", "--backend", "nope", "stats", code=2)
    site.manage("delayq", "send", "plain", "for a program", "--create")
    site.manage("delayq", "consume", "plain", "--burst", "--exec", "cat > exec.txt")
    assert "for a program" in (site.folder / "exec.txt").read_text()
    assert "no issues" in site.manage("check")


def test_waiting_tasks_are_held_against_the_code(site: DjangoSite):
    enqueued(site, "add.enqueue(1)")
    assert "none of them would fail" in site.manage("delayq", "check")
    enqueued(site, "queue.send({}, task='shop.tasks.gone')", "queue.send({'number': 1}, task='shop.tasks.add')")
    enqueued(site, "fail.enqueue(nope=1)", "attempts.enqueue(1, 2)")
    found = json.loads(site.manage("delayq", "check", "default", "--json", code=1))
    assert {(each["task"].rpartition(".")[2], each["reason"], each["problem"]) for each in found["misfits"]} == {
        ("gone", "unknown-task", None),
        ("add", "payload-mismatch", "Object contains unknown field"),
        ("fail", "failed", "TypeError"),
        ("attempts", "failed", "TypeError"),
    }


def test_consumer_stops_in_good_order(site: DjangoSite):
    go, log = site.folder / "go", site.folder / "log"
    [task] = enqueued(site, f"wait.enqueue({str(go)!r})")
    consumer = site.start("delayq", "consume", "--log-format", "json", log=log)
    try:
        until(lambda: json.loads(site.manage("delayq", "show", "default", task, "--json"))["state"] == "unack")
    finally:
        consumer.send_signal(signal.SIGTERM)  # while the task runs
        go.touch()
        code = consumer.wait(60)
    assert code == 0, log.read_text()
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


@pytest.fixture(scope="module")
def session_keys(site_of_module: DjangoSite) -> dict[str, str]:
    """The key of each user's session: "" has not logged in."""
    return dict(zip(("", "boss", "joe"), ("", *site_of_module.shell(LOGIN).split()[-2:]), strict=True))


@pytest.fixture(scope="module", params=["asgi", "wsgi"])
def web_server(
    request: pytest.FixtureRequest, site_of_module: DjangoSite, shared_server: SharedServer, default_version: str
) -> Iterator[tuple[str, Path]]:
    """How the site is served, and the socket. Two tasks wait: a dashboard looks for new queues once a minute."""
    shared_server(default_version).flush()
    enqueued(site_of_module, "add.using(queue_name='a.b/c').enqueue(1, secret='swordfish')", "add.enqueue(1)")
    socket = site_of_module.folder / request.param
    address = str(socket) if request.param == "asgi" else f"unix:{socket}"
    command = [site_of_module.python, *SERVERS[request.param], address]
    with contextlib.ExitStack() as stack:
        server = subprocess.Popen(command, cwd=SITE, env=site_of_module.env)
        stack.callback(server.wait, 30)
        stack.callback(server.terminate)
        until(socket.exists)
        yield request.param, socket


@pytest.fixture
def clients(web_server: tuple[str, Path], session_keys: dict[str, str]) -> Iterator[dict[str, httpx.Client]]:
    """A client of each user."""
    with contextlib.ExitStack() as stack:
        made = {}
        for name, key in session_keys.items():
            transport = httpx.HTTPTransport(uds=str(web_server[1]), retries=5)
            cookies = {"sessionid": key} if key else {}
            client = httpx.Client(transport=transport, base_url="http://site", cookies=cookies, timeout=30)
            made[name] = stack.enter_context(client)
        yield made


def test_dashboard_is_behind_the_login_of_staff(web_server: tuple[str, Path], clients: dict[str, httpx.Client]):
    anonymous = clients[""].get("/a/queues/")
    assert (anonymous.status_code, anonymous.headers["location"]) == (302, "/admin/login/?next=/a/queues/")
    assert clients[""].get("/a/queues/api/v1/servers").status_code == 401
    assert clients[""].post("/a/queues/").status_code == 401
    assert clients["joe"].get("/a/queues/").status_code == 403

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
    assert "a.b/c:" in shown
    assert "secret" in shown
    assert "swordfish" not in shown

    page = boss.get(queue)
    stream = re.search(r'data-stream="([^"]+)"', page.text)
    assert stream is not None
    path = stream[1].replace("&amp;", "&")
    if web_server[0] == "wsgi":
        refused = boss.get(path)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "3600")
    else:
        with boss.stream("GET", path) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert next(answer.iter_text()).startswith(("data:", "event:"))


def test_dashboard_acts_for_staff(site_of_module: DjangoSite, clients: dict[str, httpx.Client]):
    boss = clients["boss"]
    [queue] = set(re.findall(r'href="([^"]+/queues/default)"', boss.get("/a/queues/").text))
    page = boss.get(queue).text
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None
    headers = {"origin": "http://site"}
    assert boss.post(f"{queue}/pause", data={"csrf": "wrong"}, headers=headers).status_code == 403
    answer = boss.post(f"{queue}/pause", data={"csrf": token[1]}, headers=headers)
    assert answer.status_code == 303, answer.text
    assert "paused" in site_of_module.manage("delayq", "stats", "default")
