"""Actions: what was done is written down, and told on the page that follows."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse

from delayq.log import log
from delayq.web import rendering
from delayq.web.visiting import visit, who

Audit = Callable[[Mapping[str, Any]], None]
"""Takes an audit line: who, action, outcome, and what it was about."""


def logged(line: Mapping[str, Any]) -> None:
    """Write an audit line to the log."""
    log.info("audit", **line)


@contextlib.asynccontextmanager
async def audited(request: Request, action: str, **about: Any) -> AsyncIterator[dict[str, Any]]:
    """Write an audit line when the block ends, whatever becomes of it.

    Args:
        about: queue, id, ids, count, …; the block may add to the dictionary that it gets.
    """
    line = {"who": who(request), "action": action, "server": request.path_params.get("server")} | about
    line["outcome"] = "done"
    try:
        yield line
    except BaseException as error:
        line["outcome"] = f"failed: {error or type(error).__name__}"
        raise
    finally:
        note(request, line)


def note(request: Request, line: Mapping[str, Any]) -> None:
    """Write an audit line."""
    request.app.state.audit({name: value for name, value in line.items() if value is not None})


def back(request: Request, told: str, route: str, **parameters: Any) -> RedirectResponse:
    """Return to a page, and let it tell what was done.

    Args:
        route: its name; `parameters` are those of its path, those of this one when they are left out; what is None has
            no place in it.
    """
    visit(request).session.told = told
    known = {name: value for name, value in (request.path_params | parameters).items() if value is not None}
    return RedirectResponse(rendering.url(request, route, **known), 303)
