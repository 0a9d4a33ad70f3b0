"""Programs and commands start quickly: they import few modules before they need them.

A new module needs a row here: measure it with `python -X importtime`, and import what is seldom used where it is used.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from delayq import Queue
from tests.conftest import StartServer

LIGHT = {"delayq", "delayq.errors", "delayq.late_import"}
SENDS = {
    *("decimal", "email", "encodings", "hmac", "importlib", "msgspec", "numbers", "secrets", "shlex", "stringprep"),
    *("typing_extensions", "unicodedata"),
}
CONSUMES = {*SENDS, "multiprocessing", "pickle"}
COMMANDS = {*SENDS, "click", "gc", "gettext"}
HEAVY = {"cronsim", "difflib", "multiprocessing", "pickle", "redis", "rich", "structlog", "zoneinfo"}
UNUSED_BY_SENDS = {  # to act on messages, to explain them, to read a topic and to consume
    *("delayq.model.actions", "delayq.model.backup", "delayq.model.batch_handler", "delayq.model.explanation"),
    *("delayq.model.record", "delayq.operations.explain", "delayq.runtime.handler_registry"),
}
UNUSED_BY_COMMAND = UNUSED_BY_SENDS - {"delayq.model.actions"} | {"delayq.cli.send.file", "delayq.operations.doctor"}
COMMAND = """
from delayq.cli import main
try:
    main({words})
except SystemExit as error:
    assert not error.code
"""


def loaded(code: str, before: str = "") -> set[str]:
    """Return the modules that `code` imports, beside those that Python and `before` have imported."""
    script = f"""
import json, sys
{before}
first = set(sys.modules)
{code}
print(json.dumps(sorted(sys.modules.keys() - first)), file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def packages(modules: set[str]) -> set[str]:
    """Return the packages of modules, except for delayq, redis and private ones."""
    found = {module.partition(".")[0] for module in modules} - {"delayq", "redis"}
    return {name for name in found if not name.startswith("_")}


def test_import_of_delayq_alone_imports_no_client():
    modules = loaded("import delayq")
    assert {name for name in modules if name.startswith("delayq")} == LIGHT
    assert packages(modules) <= {"collections", "datetime", "math", "threading", "typing"}


@pytest.mark.parametrize(
    ("code", "before", "allowed"),
    [
        ("from delayq import Outgoing, Queue", "import redis", SENDS),
        ("from delayq.aio import Queue", "import redis.asyncio", SENDS),
        ("from delayq import *", "import redis", CONSUMES),
        ("from delayq.aio import *", "import redis.asyncio", CONSUMES),
    ],
)
def test_names_import_only_these_packages_beside_redis(code: str, before: str, allowed: set[str]):
    assert packages(loaded(code, before)) - allowed == set()


@pytest.mark.parametrize("code", ["from delayq import Queue", "from delayq.aio import Queue"])
def test_queue_imports_no_module_that_sends_do_not_need(code: str):
    assert loaded(code) & UNUSED_BY_SENDS == set()


def test_version_imports_nothing_heavy():
    modules = loaded(COMMAND.format(words=["--version"]))
    assert {module.partition(".")[0] for module in modules} & HEAVY == set()


def test_command_that_sends_imports_only_these_packages_beside_redis(start_server: StartServer):
    url = start_server().url
    with Queue("jobs", url=url) as queue:  # so its name is not compared with others
        queue.send("x")
    words = ["send", "jobs", "x", "--url", url]
    modules = loaded(COMMAND.format(words=words), "import redis")
    assert packages(modules) - COMMANDS == set()
    assert modules & UNUSED_BY_COMMAND == set()
