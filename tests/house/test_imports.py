"""Imports point one way, and what decides does no I/O.

A module may import those of the layers before its own, and those of its own layer as long as no circle comes of it.
A new module gets a place in LAYERS; a package stands for all modules in it, unless they have a place of their own.
"""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.harness.tree import modules, syntax

LAYERS = (
    "errors log",
    (
        "lua times durations names keys limits backoff envelope outcome message info stats pace quarantine rota "
        "recurrence plan schedule typed middleware batch ledger footprint capacity handler_times rates catalog"
    ),
    "calls scripts why crew samples health",
    "operations topics",
    "urls clients server embedded told wire cluster connection connecting wakeup bell",
    (
        "lake waiter outbox listener group queue dead schedules workers collecting batches leases patience overtime "
        "moves turns job inside worker_process processes handling gate mover lanes loop running consumer supervisor "
        "heartbeat doctor cron topic events member holding topic_turns topic_loop topic_consumer"
    ),
    "delayq",  # delayq/__init__.py
    "aio testing telemetry",
    "metrics instruments",
    "cli web spark __main__",
)
SANS_IO = {name for layer in LAYERS[:4] for name in layer.split()}
IO = {"asyncio", "hiredis", "multiprocessing", "redis", "selectors", "signal", "socket", "subprocess", "threading"}
SERVER = {"urls", "clients", "server", "embedded"}  # of use to one who knows nothing of queues
SERVER_NEEDS = {"errors", "log", *SERVER}

PLACES = [name for layer in LAYERS for name in layer.split()]
RANKS = {name: rank for rank, layer in enumerate(LAYERS) for name in layer.split()}


def place(module: str) -> str:
    """The name that LAYERS gives to a module."""
    return module.removeprefix("delayq.").split(".")[0]


def rank(module: str) -> int:
    """The number of a module's layer; 0 for a module without one, which has a test of its own."""
    return RANKS.get(place(module), 0)


@cache
def imports(module: str) -> set[str]:
    """All modules that ``module`` imports anywhere: also in functions, and for types only."""
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


def test_every_module_has_a_layer():
    homeless = {module for module in modules() if place(module) not in PLACES}
    assert homeless == set(), "give each of these a place in LAYERS"


def test_no_module_imports_from_above_its_layer():
    above = {
        module: names
        for module in modules()
        if (names := {name for name in own_imports(module) if rank(name) > rank(module)})
    }
    assert above == {}, "modules, and what each imports from a layer above its own"


def test_imports_make_no_circle():
    try:
        TopologicalSorter({module: own_imports(module) - {module} for module in modules()}).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


def test_what_decides_does_no_io():
    doing_io = {
        module: names
        for module in modules()
        if place(module) in SANS_IO and (names := {name.split(".")[0] for name in imports(module)} & IO)
    }
    assert doing_io == {}, "modules that decide, and what each imports for I/O"


def test_what_reaches_a_server_knows_nothing_of_queues():
    of_servers = [module for module in modules() if place(module) in SERVER]
    assert {place(module) for module in of_servers} == SERVER, "a name in SERVER has no module: remove it"
    beyond = {
        module: names
        for module in of_servers
        if (names := {place(used) for used in own_imports(module)} - SERVER_NEEDS)
    }
    assert beyond == {}, "modules that reach a server, and what each imports of queues"


def test_every_name_in_the_rules_is_in_a_layer():
    assert len(PLACES) == len(RANKS), "a name stands in two layers"
    assert set(PLACES) >= SANS_IO | SERVER_NEEDS
