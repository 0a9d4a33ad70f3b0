"""The routes of the dashboard: each declares the right that it needs. `access` grants or refuses it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from starlette.routing import Mount, Route


class Right(enum.Enum):
    """What a route asks of a user."""

    OPEN = "nobody needs to log in"
    VIEW = "any user"
    ACT = "an operator, unless the dashboard is read-only"


OPEN, VIEW, ACT = Right


class Page(Route):
    """A page, or an action that a form of a page asks for.

    Args:
        right: what it needs. Routes that need `ACT` are POST, and others GET, unless `method` says otherwise.
        for_programs: whether programs ask for it; then they log in with each request, and errors are problems.
    """

    def __init__(
        self,
        right: Right,
        path: str,
        endpoint: Callable[..., Any],
        *,
        name: str,
        method: str = "",
        for_programs: bool = False,
    ) -> None:
        self.right, self.for_programs = right, for_programs
        self.method = method or ("POST" if right is ACT else "GET")
        super().__init__(path, endpoint, name=name, methods=[self.method])


class Files(Mount):
    """A folder of files that anybody may read."""

    right, for_programs = OPEN, False
