"""Actions: what was done is written down, and told on the page that follows."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Match, Route

from delayq.log import log
from delayq.model.text import printable_id
from delayq.web import render
from delayq.web.request_context import client_address, visit, who

Audit = Callable[[Mapping[str, Any]], None]
"""Takes an audit line: who, action, outcome, and what it was about."""

MOST = 1000
"""Characters of each text in an audit line: what a form holds, an error repeats."""


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
    visit(request).noted = True
    request.app.state.audit({name: _bounded(value) for name, value in line.items() if value is not None})


def note_refusal(request: Request, why: str, verdict: str = "refused") -> None:
    """Write an audit line of an action that nobody has told of yet: it was turned away before it began.

    Of somebody who is not known, only a login is told: else strangers would fill the log.
    """
    route = next((each for each in request.app.routes if each.matches(request.scope)[0] is Match.FULL), None)
    if request.method != "POST" or not isinstance(route, Route) or visit(request).noted:
        return
    login = request.app.state.login if request.app.state.has_logout and route.name == "enter" else None
    if login is None and visit(request).user is None:
        return
    form, about = visit(request).form, route.matches(request.scope)[1]["path_params"]
    name = who(request)
    action = getattr(route, "action", "") or route.name.removeprefix("confirm_").replace("_", " ")
    if login is not None:
        name, action = form.get("name", "") if login.asks_name else "token", "login"
        about = {"from": client_address(request)}
    elif form.get("act") and route.name in {"confirm", "run"}:
        action = form["act"]
    elif form.get("act") and route.name in {"confirm_dead_records", "run_dead_records"}:
        action = f"{form['act']} dead"
    elif form.get("act") and route.name == "schedule":
        action = f"schedule {form['act']}"
    note(request, {"who": name, "action": action} | about | {"outcome": f"{verdict}: {why}"})


def _bounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_bounded(each) for each in value]
    if not isinstance(value, str):
        return value
    text = printable_id(value)
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"


def back(request: Request, told: str, route: str, asked: str = "", **parameters: Any) -> RedirectResponse:
    """Return to a page, and let it tell what was done.

    Args:
        route: its name; `parameters` are those of its path, those of this one when they are left out; what is None has
            no place in it.
        asked: what follows the ? of the link.
    """
    visit(request).session.told = told
    known = {name: value for name, value in (request.path_params | parameters).items() if value is not None}
    return RedirectResponse(render.url(request, route, **known) + (f"?{asked}" if asked else ""), 303)
