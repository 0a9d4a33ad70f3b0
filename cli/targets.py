"""TARGETs of ``delayq consume``: from ``module:queue`` to the Queue with its handler."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from delayq.aio import Queue as AsyncQueue
from delayq.model.server_url import is_same_server, redact
from delayq.model.validation import MAX_WEIGHT
from delayq.queue import Queue

_WEIGHT = re.compile(r"=([-+]?[0-9.]+)$")  # anything else after = is part of the queue's name


def weighed(targets: Iterable[str], strict: bool) -> dict[str, int | None]:
    """Return the name of each TARGET with its weight, or None.

    Raises:
        click.UsageError: a weight is out of range, a queue has two, or --strict was given too.
    """
    weights: dict[str, int | None] = {}
    for target in targets:
        name, weight = _parted(target)
        if strict and weight is not None:
            raise click.UsageError(f"--strict follows the order of the TARGETs: leave out the weight of {target}")
        if weights.get(name, weight) != weight:
            raise click.UsageError(f"{name} is given twice: give it once, with one weight")
        weights[name] = weight
    return weights


def _parted(target: str) -> tuple[str, int | None]:
    match = _WEIGHT.search(target)
    if match is None:
        return target, None
    name, digits = target[: match.start()], match[1]
    weight = int(digits) if digits.isdecimal() else -1
    if not 1 <= weight <= MAX_WEIGHT:
        raise click.UsageError(
            f"{digits} in {target} is not a weight: give a whole number from 1 to {MAX_WEIGHT:,}; "
            f"if the queue's name is {target}, give {target}=1"
        )
    return name, weight


def load_queue(target: str, url: str | None = None) -> Queue | AsyncQueue:
    """Return the queue that ``module:queue`` names, imported as ``python -m`` would import it here.

    Args:
        url: of --url.

    Raises:
        click.UsageError: there is no such module or attribute, it is not a queue, it has no handler, or names another
            server than `url`.
    """
    module_name, path = split(target)
    module = _import(module_name)
    queue = _attribute(module, path)
    if not isinstance(queue, Queue | AsyncQueue):
        what = f"is of type {type(queue).__name__}, not a Queue" if queue is not None else "does not exist"
        raise click.UsageError(f"{target} {what}: {_queues_of(module)}")
    if not queue.handlers:
        raise click.UsageError(f"{target} has no handler: decorate a function with @{path}.handler")
    if url is not None and queue.server is not None and not is_same_server(queue.server, redact(url)):
        raise click.UsageError(
            f"--url is {redact(url)}, but {target} names its own server, {queue.server}: leave out --url, or leave "
            "url= and redis= out of its Queue(…), which then uses --url or DELAYQ_URL"
        )
    return queue


def load_function(target: str) -> Callable[..., Any]:
    """Return the function that ``module:function`` names, imported as ``python -m`` would import it here.

    Raises:
        click.UsageError: there is no such module or attribute, or it cannot be called.
    """
    module_name, path = split(target, f"{target!r} is not MODULE:HANDLER: give a function, such as tasks:bill")
    function = _attribute(_import(module_name), path)
    if not callable(function):
        what = "does not exist" if function is None else f"is of type {type(function).__name__}, not a function"
        raise click.UsageError(f"{target} {what}: with --topic, give a function that takes a Record")
    return function  # type: ignore[no-any-return]


def split(target: str, error: str = "") -> tuple[str, str]:
    """Return the names of the module and the queue in it; import nothing.

    Raises:
        click.UsageError: `target` does not have that form; `error` is the text, if it is not a queue's.
    """
    module_name, colon, path = target.partition(":")
    if "/" in module_name or module_name.endswith(".py") or module_name.startswith("."):
        name = ".".join(Path(module_name.removesuffix(".py")).parts).lstrip(".") or "tasks"
        raise click.UsageError(
            f"{module_name} in {target!r} is a file: give the name by which Python imports it from here, such as "
            f"{name}:{path or 'emails'}"
        )
    if not (colon and module_name and path):
        raise click.UsageError(
            error
            or f"{target!r} is not MODULE:QUEUE: give a queue with a handler, such as tasks:emails, "
            "or --exec to run a program for each message of a queue"
        )
    return module_name, path


def _attribute(module: ModuleType, path: str) -> Any:
    """Return what a path of names leads to in a module; None if it does not exist."""
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise click.UsageError(f"no module named {error.name!r} is in {here} or installed") from error
        raise click.UsageError(f"cannot import {name!r}: {_place(error)}") from error
    except (Exception, SystemExit) as error:
        raise click.UsageError(f"cannot import {name!r}: {_place(error)}") from error


def _place(error: BaseException) -> str:
    """Return what went wrong, with the file and line."""
    if isinstance(error, SyntaxError):
        text, file, line = error.msg, error.filename, error.lineno
    else:
        last = traceback.extract_tb(error.__traceback__)[-1]
        text, file, line = str(error), last.filename, last.lineno
    return f"{type(error).__name__}: {text} ({file}, line {line})"


def _queues_of(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Queue | AsyncQueue)]
    return (
        f"the queues of {module.__name__} are {', '.join(sorted(names))}"
        if names
        else f"{module.__name__} has no queues"
    )
