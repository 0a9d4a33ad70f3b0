"""Logging in and out."""

from __future__ import annotations

import math

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from delayq.web import audit, render
from delayq.web.auth import KNOWN_SECONDS, Login, User
from delayq.web.error_pages import back_on
from delayq.web.passwords import MOST_SECRET, TooManyLogins
from delayq.web.request_context import client_address, cookie_name, visit
from delayq.web.routes import OPEN, VIEW, Page


async def show(request: Request) -> Response:
    """Show the login form."""
    if not request.app.state.has_logout or visit(request).user is not None:
        return RedirectResponse(_wanted(request), 303)
    login: Login = request.app.state.login
    wanted = request.query_params.get("next", "")
    return render.page(request, "login.html", asks_name=login.asks_name, wanted=wanted)


@back_on(show)
async def enter(request: Request) -> Response:
    """Log in; wrong secrets are limited."""
    if not request.app.state.has_logout:
        return RedirectResponse(_wanted(request), 303)
    login: Login = request.app.state.login
    attempts, address = request.app.state.attempts, client_address(request)
    form = visit(request).form
    name = form.get("name", "")[:MOST_SECRET] if login.asks_name else "token"
    device = request.cookies.get(_device_cookie(request), "")
    is_known = login.knows(name, device)
    place = f"browser {device}" if is_known else address  # a known browser does not share the limit of its address
    wait = attempts.begin(place)
    if wait:
        audit.note(request, {"who": name, "action": "login", "from": address, "outcome": "refused: too many attempts"})
        seconds = str(math.ceil(wait))
        raise HTTPException(429, f"Too many attempts: wait {seconds} seconds.", {"retry-after": seconds})
    line = {"who": name, "action": "login", "from": address}
    try:
        user = await login.check(name, form.get("secret", "")[: MOST_SECRET + 1], is_known)
    except TooManyLogins as error:
        attempts.forgive(place)  # it was not checked
        audit.note(request, line | {"outcome": "refused: too many logins at once"})
        raise HTTPException(503, "Too many logins at once: try again in a few seconds.") from error
    if user is None:
        audit.note(request, line | {"outcome": "refused"})
        raise HTTPException(403, "Wrong name or password." if login.asks_name else "Wrong token.")
    attempts.forgive(place)
    audit.note(request, line | {"outcome": "done"})
    visit(request).session = request.app.state.sessions.new(user.name)  # the old one may be an attacker's
    return _known(request, user, RedirectResponse(_wanted(request), 303))


async def leave(request: Request) -> Response:
    """Log out and end the session."""
    request.app.state.sessions.end(visit(request).session)
    visit(request).ended = True
    audit.note(request, {"who": visit(request).session.user, "action": "logout", "outcome": "done"})
    return RedirectResponse(render.url(request, "overview"), 303)


def _known(request: Request, user: User, answer: Response) -> Response:
    """Set the device cookie: this user has logged in with this browser. It outlives the logout but grants no access."""
    device = request.app.state.login.device(user.name)
    if device:
        path, is_secure = render.url(request, "login"), request.url.scheme == "https"
        answer.set_cookie(
            _device_cookie(request), device, KNOWN_SECONDS, path=path, httponly=True, samesite="lax", secure=is_secure
        )
    return answer


def _device_cookie(request: Request) -> str:
    return f"{cookie_name(request)}-device"


def _wanted(request: Request) -> str:
    """Return where to go after the login: a path of the dashboard, never another site."""
    path = request.query_params.get("next", "")
    root = request.scope.get("root_path", "")
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return root + path if is_own else render.url(request, "overview")


ROUTES = [
    Page(OPEN, "/login", show, name="login"),
    Page(OPEN, "/login", enter, name="enter", method="POST"),
    Page(VIEW, "/logout", leave, name="logout", method="POST"),
]
