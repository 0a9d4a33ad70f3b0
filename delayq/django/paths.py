"""The path of a task: from the text in a message to the task of the application."""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import import_string

from delayq.django.framework import Task
from delayq.errors import InvalidInput


def load(path: str) -> Any:
    """Return the task at a path, ``module.function``.

    Raises:
        InvalidInput: it cannot be imported, or is something else: a message must not make anything else run.
    """
    try:
        found = import_string(path)
    except Exception as error:
        raise InvalidInput(f"the task {path!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(found, Task):
        raise InvalidInput(f"{path!r} is of type {type(found).__name__}, not a task: decorate the function with @task")
    return found
