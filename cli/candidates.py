"""Completions: queues and message ids on the server, and queues in modules of the folder.

The server has one second to answer. Nothing is created, changed or imported, and errors stay silent, since the user is
still typing.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import logging
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from delayq.model.actions import ACTIONS
from delayq.model.placement import State

if TYPE_CHECKING:
    from .connection import ServerOptions

SECONDS = 1.0
MOST_IDS = 100  # per state, those due first
MOST_FILES = 500
DEPTHS = ("*.py", "*/*.py", "*/*/*.py")

ALL: tuple[State, ...] = ("pending", "ready", "unack", "retry", "dead", "held")
STATES_FOR: dict[str, tuple[State, ...]] = {
    **{f"{group}{each.name}": each.states for each in ACTIONS.values() for group in ("", "dead ")},
    "dead edit": ("dead",),
    "dead show": ("dead",),
}
"""The states whose ids a command takes; commands that are not listed take any."""


def queues(ctx: click.Context, _param: click.Parameter | None, incomplete: str) -> list[str]:
    """Complete the queues on the server."""
    return _offered(_asked(ctx, lambda server: server.each_name("queue")), incomplete)


def ids(ctx: click.Context, _param: click.Parameter | None, incomplete: str) -> list[str]:
    """Complete the message ids of the queue in the line, those due first."""
    states = STATES_FOR.get(ctx.command_path.partition(" ")[2], ALL)

    def first(server: ServerOptions) -> list[str]:
        queue = server.queue(ctx.params["name"])
        pages = [queue.page(state, limit=MOST_IDS, largest=0) for state in states]
        return [message.id for page in pages for message in page.messages]

    return _offered(_asked(ctx, first), incomplete)


def topics(ctx: click.Context, param: click.Parameter | None, incomplete: str) -> list[str]:
    """Complete the topics on the server or, with --ledger, the queues."""
    if ctx.params.get("ledger"):
        return queues(ctx, param, incomplete)
    return _offered(_asked(ctx, lambda server: server.each_name("topic")), incomplete)


def groups(ctx: click.Context, _param: click.Parameter | None, incomplete: str) -> list[str]:
    """Complete the groups of the topic in the line."""

    def named(server: ServerOptions) -> list[str]:
        with server.topic(ctx.params["name"], bool(ctx.params.get("ledger"))) as topic:
            return [each.name for each in topic.groups()]

    return _offered(_asked(ctx, named), incomplete)


def targets(ctx: click.Context, param: click.Parameter | None, incomplete: str) -> list[str]:
    """Complete what can be consumed: queues in the modules of this folder or, with --exec, on the server."""
    if ctx.params.get("program"):
        return queues(ctx, param, incomplete)
    return _offered(_queues_in(Path.cwd()), incomplete)


def _offered(words: Iterable[str], incomplete: str) -> list[str]:
    """Return the words that a shell takes literally, so that no name from the server can become a command."""
    return [
        word
        for word in sorted(set(words))
        if word.startswith(incomplete) and shlex.quote(word) == word and not word.startswith("-")
    ]


def _asked(ctx: click.Context, question: Callable[[ServerOptions], Iterable[str]]) -> list[str]:
    """Return what the server answers in time; nothing if it does not."""
    url, prefix = ctx.params.get("url"), ctx.params.get("prefix") or "delayq"
    from .connection import ServerOptions  # noqa: PLC0415  # imports redis-py, which a command's --help does not need

    answers: list[str] = []

    def ask() -> None:
        with contextlib.suppress(Exception), ServerOptions(url, prefix, makes_store=False) as server:
            for answer in question(server):
                answers.append(answer)  # noqa: PERF402  # keeps those that come in time

    logging.disable()
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(SECONDS)
    return list(answers)


def _queues_in(folder: Path) -> Iterator[str]:
    """Yield the queues of the modules below a folder as TARGETs; the modules are parsed, not imported."""
    from .consume.reload import own  # noqa: PLC0415  # imports delayq's consumer

    paths = itertools.chain.from_iterable(folder.glob(depth) for depth in DEPTHS)
    for path in itertools.islice((path for path in paths if own(path, folder)), MOST_FILES):
        parts = path.relative_to(folder).with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        with contextlib.suppress(OSError, SyntaxError, ValueError):  # unreadable, or half written
            text = path.read_text("utf-8")
            if "Queue(" in text:
                yield from (f"{module}:{name}" for name in _queues_of(ast.parse(text)))


def _queues_of(module: ast.Module) -> Iterator[str]:
    for statement in module.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Call):
            named = statement.value.func
            called = named.attr if isinstance(named, ast.Attribute) else named.id if isinstance(named, ast.Name) else ""
            places = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if called == "Queue":
                yield from (place.id for place in places if isinstance(place, ast.Name))
