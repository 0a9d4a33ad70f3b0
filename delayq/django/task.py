"""What the decorator ``@task`` makes for this backend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from delayq.django.framework import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayqTask(Task):
    """A task with options of delayq.

    Attributes:
        max_retries: deliveries after the first one, 0 to 1,000,000; None for that of the backend's OPTIONS. Django 6.1
            and django-tasks take it in the decorator, ``@task(max_retries=3)``.
    """

    max_retries: int | None = None

    def using(self, *, max_retries: int | None = None, **changes: Any) -> Self:
        """Return a task with other options, as Django's `using` does; `max_retries` works with any version."""
        made: Self = Task.using(self, **changes)
        return made if max_retries is None else replace(made, max_retries=max_retries)
