"""The context of a request: its session, user and form."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection
from starlette.types import Scope

from delayq.web.auth import User
from delayq.web.forms import Refusal
from delayq.web.sessions import Session

_KEY = "delayq.visit"

SAFE = "/:@,+="
"""The characters that links do not quote; each stands for itself in a cookie, too."""

AROUND = "delayq.around"
"""The key in a scope for the path parameters of the application around the dashboard; its `login` may need them."""


@dataclass
class RequestContext:
    """What the security middleware knows of a request.

    Attributes:
        session: the session of the browser; a new one if it had none.
        user: the user; None before the login.
        token: the token of this session's forms.
        may_act: whether the user may change anything.
        form: the fields of a POST.
        refusal: why the form was refused, or None.
        ended: whether to delete the cookie.
        noted: whether the request has an audit line.
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
    """Store the context in a scope."""
    scope[_KEY] = visit


def visit(request: HTTPConnection) -> RequestContext:
    """Return the context of a request."""
    found: RequestContext = request.scope[_KEY]
    return found


def who(request: HTTPConnection) -> str:
    """Return the name of the user, as in audit lines."""
    user = visit(request).user
    return user.name if user else "nobody"


def client_address(request: HTTPConnection) -> str:
    """Return the address that a request comes from."""
    return request.client.host if request.client else ""


def cookie_name(request: HTTPConnection) -> str:
    """Return the name of the cookie.

    It has the port and the path where the dashboard is mounted, since browsers send cookies to all ports of a host, and
    to all paths below the one of a cookie.
    """
    port = (request.scope.get("server") or (None, None))[1]
    root = request.scope.get("root_path", "").encode(errors="replace")
    parts = ["delayq", *([str(port)] if port else []), *([hashlib.sha256(root).hexdigest()[:8]] if root else [])]
    return "-".join(parts)


def root_of(request: HTTPConnection) -> str:
    """Return the path where the dashboard is mounted, quoted as in a URL; empty for the root."""
    return quote(request.scope.get("root_path", ""), safe=SAFE)


def path_of(request: HTTPConnection) -> str:
    """Return the canonical path below where the dashboard is mounted."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))


def is_api(request: HTTPConnection) -> bool:
    """Whether a request is a program's, so that errors are problems. Without a route, the path says so."""
    route = request.scope["route"]
    return f"{path_of(request)}/".startswith("/api/") if route is None else getattr(route, "for_programs", False)
