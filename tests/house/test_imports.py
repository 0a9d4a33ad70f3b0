"""Imports between the rooms of the package point one way, and the code that decides does no I/O."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.harness.tree import ROOT, modules, syntax

# What a room may import, in addition to what the rooms it names may import.
ROOMS = {
    "errors": set(),
    "lua": set(),
    "model": {"errors"},
    "protocol": {"model", "lua"},
    "operations": {"protocol"},
    "transport": {"protocol"},
    "runtime": {"operations", "transport"},
    "face": {"runtime"},
    "lake": {"face"},
    "metrics": {"face"},
    "outbox": {"face"},
    "testing": {"face"},
    "spark": {"lake"},
    "web": {"metrics", "lake"},
    "cli": {"web", "spark", "testing", "outbox"},
    "django": {"cli"},
}
SANS_IO = {"model", "protocol", "operations"}
IO = {"asyncio", "hiredis", "multiprocessing", "redis", "selectors", "signal", "socket", "subprocess", "threading"}
SERVER = {
    f"delayq.transport.{name}"
    for name in ("embedded", "clients", "fast_stream", "polling", "pool", "redis_py", "retry_async", "server_check")
}
TEXTS = {"delayq.model.text", "delayq.model.credentials", "delayq.model.extras", "delayq.model.server_url"}
"""Modules about texts of any kind."""

THROUGH_THE_DOOR = {"cli", "django", "web", "spark", "metrics", "outbox", "testing"}


def room(module: str) -> str:
    """Return the room of a module. Top-level modules are the face, except for the command and those of `errors`."""
    first = module.removeprefix("delayq").removeprefix(".").partition(".")[0]
    if first in {"errors", "late_import", "log", "signals"}:
        return "errors"
    if first == "__main__":
        return "cli"
    return first if first in ROOMS else "face"


@cache
def reach(of: str) -> set[str]:
    """Return the rooms that this one may import."""
    return {of}.union(*map(reach, ROOMS[of]))


@cache
def imports(module: str) -> set[str]:
    """All modules that ``module`` imports anywhere, including in functions and only for types."""
    path = modules()[module]
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(syntax(module)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*parents, *([node.module] if node.module else [])])
            found.update(
                name if (name := f"{source}.{alias.name}") in modules() else source  # a module, or something in one
                for alias in node.names
            )
    return found


def own_imports(module: str) -> set[str]:
    return {name for name in imports(module) if name.split(".")[0] == "delayq"}


def test_table_lists_the_rooms_of_the_package():
    assert {room(module) for module in modules()} == set(ROOMS)


def test_modules_import_only_from_permitted_rooms():
    wrong = {
        module: names
        for module in modules()
        if (names := {name for name in own_imports(module) if room(name) not in reach(room(module))})
    }
    assert wrong == {}, "modules, and what each imports from a room that is not below its own"


def test_imports_have_no_cycles():
    try:
        TopologicalSorter({module: own_imports(module) - {module} for module in modules()}).prepare()
    except CycleError as error:
        pytest.fail(f"an import cycle: {' <- '.join(error.args[1])}")


def test_code_that_decides_does_no_io():
    doing_io = {
        module: names
        for module in modules()
        if room(module) in SANS_IO and (names := {name.split(".")[0] for name in imports(module)} & IO)
    }
    assert doing_io == {}, "modules that decide, and what each imports for I/O"


def test_code_that_talks_to_a_server_knows_nothing_about_queues():
    of_servers = {module for module in modules() if module.startswith(tuple(SERVER))}
    needs = {name for module in of_servers for name in own_imports(module)}
    assert {name for name in needs - of_servers if room(name) != "errors"} <= TEXTS


def test_rooms_above_the_face_use_one_door():
    reaching = {
        module: names
        for module in modules()
        if room(module) in THROUGH_THE_DOOR
        and (
            names := {
                node.attr
                for node in ast.walk(syntax(module))
                if isinstance(node, ast.Attribute)
                and node.attr in {"_context", "_executor"}
                and not (isinstance(node.value, ast.Name) and node.value.id == "self")
            }
        )
    }
    allowed = {
        "delayq.testing.served_by",  # it exchanges what is behind the door
        "delayq.cli.bench",  # it measures the server of its queue, and deletes the keys
    }
    assert {module: names for module, names in reaching.items() if module not in allowed} == {}


def test_spark_builds_no_commands():
    """It uses operations, as the command line and the dashboard could, and does not open a queue itself."""
    building = {
        module: names
        for module in modules()
        if room(module) == "spark" and (names := {name for name in own_imports(module) if room(name) == "protocol"})
    }
    assert building == {}


def test_http_api_and_pages_do_not_know_each_other():
    """What both need is below both."""
    api, pages = "delayq.web.api", "delayq.web.pages"
    known = {
        module: names
        for module in modules()
        for own, other in ((api, pages), (pages, api))
        if module.startswith(own) and (names := {name for name in own_imports(module) if name.startswith(other)})
    }
    assert known == {}, "modules of the API and of the pages, and what each imports from the other"


def test_signals_are_handled_in_one_module():
    """Others may name and send them, except for two programs that run as plain files, without delayq."""
    alone = {"delayq.signals", "delayq.runtime.watch_groups", "delayq.transport.embedded.keeper"}
    about = re.compile(r"signal|getsignal|pthread_\w+|sig[a-z]+|set\w+|default_int_handler|SIG_\w+|strsignal")
    handling = {
        f"{module}:{node.lineno}"
        for module in modules().keys() - alone
        for node in ast.walk(syntax(module))
        if (isinstance(node, ast.ImportFrom) and node.module == "signal")
        or (isinstance(node, ast.Attribute) and node.attr in {"add_signal_handler", "remove_signal_handler"})
        or (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "signal"
            and about.fullmatch(node.attr)
            and "signal" in imports(module)
        )
    }
    assert handling == set(), "use delayq.signals"


def test_tests_import_the_installed_names_of_packages():
    """Outside the checkout, such as in the tests of the wheel, there are no `cli` and `lua`."""
    offenders = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in {"cli", "lua"})
        or (isinstance(node, ast.Import) and {each.name.split(".")[0] for each in node.names} & {"cli", "lua"})
    ]
    assert offenders == []
