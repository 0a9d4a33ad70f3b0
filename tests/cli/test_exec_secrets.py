"""consume --exec: the program gets no secret of delayq, unless it is told to hand on the URL."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from delayq.cli.consume.command import VARIABLES
from delayq.cli.consume.program import environment as environment_of

from delayq import Queue
from tests.cli.conftest import Invoke, Run
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.tree import ROOT

SECRET = "s3cretZq9x"
WHOLE_ENVIRONMENT = f"{sys.executable} -c 'import os, json; print(json.dumps(dict(os.environ)))'"
SEND = f'{sys.executable} -m delayq.cli send invoices "$(cat)" --id sent'

OPEN = {
    *("DELAYQ_HOME", "DELAYQ_LOG_LEVEL", "DELAYQ_REQUIRE_URL", "DELAYQ_REDIS_SERVER", "DELAYQ_DASHBOARD_REDACT"),
    *("DELAYQ_ID", "DELAYQ_QUEUE", "DELAYQ_ATTEMPT", "DELAYQ_MAX_RETRIES", "DELAYQ_DUE_AT", "DELAYQ_HEARTBEAT"),
    *("DELAYQ_SUPERVISOR", "DELAYQ_URL_TYPED"),
    *VARIABLES.values(),
}
"""Variables that hold no secret: a program may have them."""


@pytest.fixture
def locked(start_server: StartServer) -> RedisServer:
    """A server with a password."""
    return start_server(port=True, config={"requirepass": SECRET, "save": "3600 1"})


@pytest.fixture
def url(locked: RedisServer) -> str:
    return f"redis://:{SECRET}@127.0.0.1:{locked.port}?socket_timeout=30"


@pytest.fixture
def secrets(url: str) -> dict[str, str | None]:
    """An environment with each secret of delayq."""
    database = f"postgresql://shop:{SECRET}@localhost/shop"
    return {"DELAYQ_URL": url, "DELAYQ_DASHBOARD_TOKEN": f"token-{SECRET}", "DELAYQ_DATABASE_URL": database}


def variables() -> set[str]:
    """The variables of delayq that its code names."""
    sources = [path.read_text() for folder in ("delayq", "cli") for path in (ROOT / folder).rglob("*.py")]
    named = set(re.findall(r"\bDELAYQ_[A-Z_]*[A-Z]\b", "\n".join(sources)))
    return {name for name in named if not name.startswith("DELAYQ_HEADER")}


def test_variable_of_delayq_is_open_or_kept_from_the_program(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    queue.send("payload")
    (message,) = queue.receive()
    for name in variables():
        monkeypatch.setenv(name, SECRET)
    assert {name for name, value in environment_of(message).items() if value == SECRET} <= OPEN
    assert "DELAYQ_DASHBOARD_TOKEN" not in environment_of(message, with_url=True)


TWO_PROCESSES = pytest.param(("--processes", "2"), marks=pytest.mark.full)
IN_A_POOL = pytest.param(("--pool", "process"), marks=pytest.mark.full)


@pytest.mark.parametrize("words", [(), TWO_PROCESSES])
def test_program_gets_no_secret(words: tuple[str, ...], delayq: Run, url: str, secrets: dict[str, str | None]):
    assert delayq("send", "emails", "hello", env=secrets).returncode == 0
    done = delayq("consume", "emails", "--exec", WHOLE_ENVIRONMENT, "--burst", *words, env=secrets)
    assert json.loads(done.stdout)["DELAYQ_QUEUE"] == "emails"
    assert SECRET not in done.stdout + done.stderr
    assert delayq("send", "emails", "hello", env=secrets).returncode == 0
    done = delayq("consume", "emails", "--exec", WHOLE_ENVIRONMENT, "--burst", "--url", url, env={"DELAYQ_URL": None})
    assert json.loads(done.stdout)["DELAYQ_QUEUE"] == "emails"
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("words", [(), TWO_PROCESSES])
def test_program_gets_the_url_on_request(words: tuple[str, ...], delayq: Run, secrets: dict[str, str | None]):
    assert delayq("send", "orders", "41", env=secrets).returncode == 0
    done = delayq("consume", "orders", "--exec", SEND, "--exec-with-url", "--burst", *words, env=secrets)
    assert done.stdout.startswith("sent sent to invoices")
    shown = json.loads(delayq("show", "invoices", "sent", "--json", env=secrets).stdout)
    assert shown["payload"] == 41


PRINTS_THE_URL = (
    f'{sys.executable} -c \'import os; from urllib.parse import urlsplit; url = os.environ["DELAYQ_URL"];'
    ' print("password", urlsplit(url).password); raise ValueError("cannot connect to " + url)\' >&2'
)


def test_password_that_the_program_prints_is_neither_logged_nor_stored(
    delayq: Run, secrets: dict[str, str | None], locked: RedisServer
):
    assert delayq("send", "orders", "41", "--max-retries", "0", "--id", "order", env=secrets).returncode == 0
    done = delayq("consume", "orders", "--exec", PRINTS_THE_URL, "--exec-with-url", "--burst", env=secrets)
    shown = delayq("show", "orders", "order", "--json", env=secrets)
    for text in (done.stderr, json.loads(shown.stdout)["error"]):
        assert "password ***" in text
        assert f"cannot connect to redis://:***@127.0.0.1:{locked.port}" in text
    assert SECRET not in done.stdout + done.stderr + shown.stdout


def test_program_without_the_url_is_refused_instead_of_using_another_store(
    delayq: Run, secrets: dict[str, str | None], tmp_path: Path
):
    assert delayq("send", "orders", "41", "--max-retries", "0", "--id", "order", env=secrets).returncode == 0
    done = delayq("consume", "orders", "--exec", SEND, "--burst", env=secrets)
    assert "DELAYQ_REQUIRE_URL forbids the embedded store" in done.stderr
    assert "--exec-with-url" in done.stderr
    assert json.loads(delayq("show", "orders", "order", "--json", env=secrets).stdout)["state"] == "dead"
    assert not list(tmp_path.rglob("*aof*"))


@pytest.mark.full
def test_program_uses_the_embedded_store_of_its_consumer(delayq: Run):
    nowhere = {"DELAYQ_URL": None}
    assert delayq("send", "orders", "41", env=nowhere).returncode == 0
    done = delayq("consume", "orders", "--exec", SEND, "--burst", env=nowhere)
    assert done.stdout.startswith("sent sent to invoices")


@pytest.mark.full
def test_scheduled_command_gets_the_url_on_request(delayq: Run, secrets: dict[str, str | None]):
    command = f"{sys.executable} -m delayq.cli send invoices 41 --id sent"
    assert delayq("cron", "add", "cron", "invoice", "@yearly", "--exec", command, env=secrets).returncode == 0
    assert delayq("cron", "run", "cron", "invoice", env=secrets).returncode == 0
    done = delayq("consume", "cron", "--exec", "sh", "--exec-with-url", "--burst", env=secrets)
    assert done.stdout.startswith("sent sent to invoices")


@pytest.mark.parametrize("words", [(), IN_A_POOL, TWO_PROCESSES])
def test_handler_of_a_module_gets_the_url(
    words: tuple[str, ...], delayq: Run, url: str, secrets: dict[str, str | None], tmp_path: Path
):
    (tmp_path / "tasks.py").write_text(
        "import os\nfrom delayq import Queue\nemails = Queue('emails')\n\n"
        "@emails.handler\ndef handle(message):\n    print(os.environ['DELAYQ_URL'])\n"
    )
    assert delayq("send", "emails", "hello", env=secrets).returncode == 0
    done = delayq("consume", "tasks:emails", "--burst", *words, env=secrets)
    assert done.stdout.strip() == url


def test_option_without_exec_is_refused(invoke: Invoke):
    done = invoke("consume", "json:dumps", "--exec-with-url")
    assert (done.exit_code, "--exec-with-url needs --exec" in done.stderr) == (2, True)
    done = invoke("consume", "json:dumps", "--exec-with-url", "--topic", "orders", "--group", "log")
    assert (done.exit_code, "--exec-with-url applies only to queues" in done.stderr) == (2, True)
