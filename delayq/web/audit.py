"""The audit log: each action is recorded, and shown as a notice on the next page."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse

from delayq.log import log
from delayq.model.text import printable_id
from delayq.web import render
from delayq.web.request_context import client_address, visit, who
from delayq.web.routes import Page

Audit = Callable[[Mapping[str, Any]], None]
"""Takes an audit line: who, action, outcome and target."""

MOST_NAME = 64
"""Characters of a name that a stranger gives."""

MOST = 1000
"""Characters of each text in an audit line: errors may repeat the content of a form."""

TEXTS = ("outcome", "told", "all")
"""The fields of an audit line that may repeat what was typed, without hidden values."""


def logged(line: Mapping[str, Any]) -> None:
    """Write an audit line to the log."""
    log.info("audit", **line)


@contextlib.asynccontextmanager
async def audited(request: Request, action: str, **about: Any) -> AsyncIterator[dict[str, Any]]:
    """Write an audit line when the block ends, also by an exception.

    Args:
        about: queue, id, ids, count, …; the block can add to the dictionary that it receives.
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
    """Write an audit line, unless it is one of too many refusals to strangers.

    Logins and wrong passwords always have one: `LoginThrottle` limits how many are checked.
    """
    visit(request).noted = True
    if line["outcome"] not in {"done", "refused"} and not is_worth_a_line(request):
        return
    if visit(request).user is None:
        line = {**line, "who": str(line["who"])[:MOST_NAME]}
    texts = {name: render.redaction(request).text(line[name]) for name in TEXTS if isinstance(line.get(name), str)}
    request.app.state.audit({name: _bounded(value) for name, value in {**line, **texts}.items() if value is not None})


def is_worth_a_line(request: Request) -> bool:
    """Whether to log a refusal or an error: for strangers, only some per minute, from an address and in total."""
    if visit(request).user is not None:
        return True
    of_address, of_all = request.app.state.refusals
    return not of_address.begin(client_address(request)) and not of_all.begin("")


def note_refusal(request: Request, why: str, verdict: str = "refused") -> None:
    """Write an audit line for an action that was refused before it began, unless it already has one.

    For unknown users, only logins are recorded: otherwise strangers could fill the log.
    """
    route = request.scope["route"]
    if request.method != "POST" or not isinstance(route, Page) or visit(request).noted:
        return
    login = request.app.state.login if request.app.state.has_logout and route.name == "enter" else None
    if login is None and visit(request).user is None:
        return
    form, about = visit(request).form, request.path_params
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


def back(request: Request, notice: str, route: str, asked: str = "", **parameters: Any) -> RedirectResponse:
    """Return to a page, which shows what was done.

    Args:
        route: the name of its route; `parameters` are those of its path. The ones left out come from the request's
            path, and None removes one.
        asked: the query of the link.
    """
    visit(request).session.notice = notice
    known = {name: value for name, value in (request.path_params | parameters).items() if value is not None}
    return RedirectResponse(render.url(request, route, **known) + (f"?{asked}" if asked else ""), 303)
