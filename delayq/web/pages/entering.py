"""Logging in and out."""

from __future__ import annotations

import math

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from delayq.web import acting, rendering
from delayq.web.logins import MOST_SECRET, Busy, Login
from delayq.web.visiting import client_address, visit


async def show(request: Request) -> Response:
    """Ask for what one logs in with."""
    if not request.app.state.has_logout or visit(request).user is not None:
        return RedirectResponse(_wanted(request), 303)
    return _asked(request)


async def enter(request: Request) -> Response:
    """Log in; a wrong secret costs one of a few attempts."""
    if not request.app.state.has_logout:
        return RedirectResponse(_wanted(request), 303)
    login: Login = request.app.state.login
    attempts, address = request.app.state.attempts, client_address(request)
    wait = attempts.begin(address)
    form = visit(request).form
    name = form.get("name", "")[:MOST_SECRET] if login.asks_name else "token"
    if wait:
        acting.note(request, {"who": name, "action": "login", "from": address, "outcome": "refused: too many attempts"})
        answer = _asked(request, f"There were too many attempts: wait {math.ceil(wait)} seconds.", 429)
        answer.headers["retry-after"] = str(math.ceil(wait))
        return answer
    line = {"who": name, "action": "login", "from": address}
    try:
        user = await login.check(name, form.get("secret", "")[: MOST_SECRET + 1])
    except Busy:
        attempts.forgive(address)  # nobody has looked at it
        acting.note(request, line | {"outcome": "refused: too many logins at once"})
        return _asked(request, "Too many log in at once: try again in a few seconds.", 503)
    if user is None:
        acting.note(request, line | {"outcome": "refused"})
        return _asked(request, "That is not right." if login.asks_name else "That is not the token.", 403)
    attempts.forgive(address)
    acting.note(request, line | {"outcome": "done"})
    visit(request).session = request.app.state.sessions.new(user.name)  # one that nobody can have planted
    return RedirectResponse(_wanted(request), 303)


async def leave(request: Request) -> Response:
    """Log out: the session is good no more."""
    request.app.state.sessions.end(visit(request).session)
    visit(request).ended = True
    acting.note(request, {"who": visit(request).session.user, "action": "logout", "outcome": "done"})
    return RedirectResponse(rendering.url(request, "overview"), 303)


def _asked(request: Request, error: str = "", status: int = 200) -> Response:
    login: Login = request.app.state.login
    wanted = request.query_params.get("next", "")
    return rendering.page(request, "entering.html", status, asks_name=login.asks_name, wrong=error, wanted=wanted)


def _wanted(request: Request) -> str:
    """Where to go then: a path of the dashboard, and of no other site."""
    path = request.query_params.get("next", "")
    root = request.scope.get("root_path", "")
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return root + path if is_own else rendering.url(request, "overview")


ROUTES = [
    Route("/login", show, name="login", methods=["GET"]),
    Route("/login", enter, name="enter", methods=["POST"]),
    Route("/logout", leave, name="logout", methods=["POST"]),
]
