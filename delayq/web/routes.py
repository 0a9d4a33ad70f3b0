"""The routes of the dashboard: each declares the right that it needs. `access` grants or refuses it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from starlette.routing import Route


class Right(enum.Enum):
    """What a route asks of a user."""

    OPEN = enum.auto()
    """Nothing: nobody needs to log in."""

    VIEW = enum.auto()
    """A user."""

    ACT = enum.auto()
    """An operator, and a dashboard that is not read-only."""


OPEN, VIEW, ACT = Right


class Page(Route):
    """A page, or an action that a form of a page asks for.

    Args:
        right: what it needs. Routes that need `ACT` are POST, and others GET, unless `method` says otherwise.
        for_programs: whether programs ask for it; then they log in with each request, and errors are problems.
        has_session: whether its answers set the cookie of a browser's session.
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
        has_session: bool = True,
    ) -> None:
        self.right, self.for_programs, self.has_session = right, for_programs, has_session
        self.method = method or ("POST" if right is ACT else "GET")
        super().__init__(path, endpoint, name=name, methods=[self.method])
