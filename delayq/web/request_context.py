"""A visit: who asks, and with what."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection
from starlette.types import Scope

from delayq.web.auth import User
from delayq.web.forms import Refusal
from delayq.web.sessions import Session

_KEY = "delayq.visit"


@dataclass
class RequestContext:
    """What the guard knows of a request.

    Attributes:
        session: of the browser; a new one, if it had none.
        user: who asks; None for somebody who has not logged in.
        token: what a form of this session carries.
        may_act: whether the user may change anything.
        form: the fields of a POST.
        refusal: why the form was refused; None while it was not.
        ended: whether the cookie is to be taken away.
        noted: whether an audit line tells of the request.
    """

    session: Session
    user: User | None
    token: str
    may_act: bool = False
    form: QueryParams = field(default_factory=QueryParams)
    refusal: Refusal | None = None
    ended: bool = False
    noted: bool = False


def enter(scope: Scope, visit: RequestContext) -> None:
    """Let all that follows know of a visit."""
    scope[_KEY] = visit


def visit(request: HTTPConnection) -> RequestContext:
    """Return the visit of a request."""
    found: RequestContext = request.scope[_KEY]
    return found


def who(request: HTTPConnection) -> str:
    """Return who asks, as the audit lines tell it."""
    user = visit(request).user
    return user.name if user else "nobody"


def client_address(request: HTTPConnection) -> str:
    """Return where a request comes from."""
    return request.client.host if request.client else ""


def cookie_name(request: HTTPConnection) -> str:
    """Return the name of the cookie: dashboards on other ports of this host get the same ones sent."""
    port = (request.scope.get("server") or (None, None))[1]
    return f"delayq-{port}" if port else "delayq"


def path_of(request: HTTPConnection) -> str:
    """Return the path below where the dashboard is mounted."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", "")) or "/"


def is_api(request: HTTPConnection) -> bool:
    """Whether a program asks, and errors are for programs; the page that describes the API is one for people."""
    path = path_of(request)
    return (path == "/api" or path.startswith("/api/")) and path != "/api/v1/"
