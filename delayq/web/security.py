"""The security middleware: it refuses foreign host names, and gives each browser its session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from delayq.web import problems
from delayq.web.auth import Login, User
from delayq.web.forgery import hostname
from delayq.web.forms import Refusal
from delayq.web.request_context import RequestContext, cookie_name, enter, is_api, root_of
from delayq.web.sessions import Sessions

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)

HEADERS = {  # of every answer: the browser may run, show and send only what the dashboard itself serves
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True)
class SecurityRules:
    """What the dashboard knows about access.

    Attributes:
        login: how users log in; None if nobody needs to; or a function that returns the user of a request, or None.
        read_only: allow no changes.
        hosts: the host names to answer to, without ports; any if empty.
    """

    login: Login | Callable[[Request], User | None] | None
    read_only: bool
    hosts: Sequence[str]


class SecurityMiddleware:
    """Refuses wrong host names, and keeps the session in a cookie."""

    def __init__(self, app: ASGIApp, rules: SecurityRules, sessions: Sessions) -> None:
        self._app = app
        self._rules = rules
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        if not self._is_host(request):
            await _wrong_host(request)(scope, receive, send)
            return
        cookie = cookie_name(request)
        held = request.cookies.get(cookie)
        session = (self._sessions.read(held) if held else None) or self._sessions.new()
        visit = RequestContext(session, None, self._sessions.token(session))
        enter(scope, visit)
        before = self._sessions.written(session)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and not (is_api(request) or _is_file(scope)):
                after = self._sessions.written(visit.session)
                if visit.ended:
                    _set_cookie(message, request, cookie, "", 0)
                elif held is None or after != before or before != held:
                    _set_cookie(message, request, cookie, after, visit.session.until)
            await send(message)

        await self._app(scope, receive, sending)

    def _is_host(self, request: Request) -> bool:
        return not self._rules.hosts or hostname(request.headers.get("host", "")) in self._rules.hosts


def _is_file(scope: Scope) -> bool:
    return not getattr(scope["route"], "has_session", True)


def _wrong_host(request: Request) -> Response:
    message = "The dashboard does not answer to this host name."
    return problems.answer(Refusal(421, message)) if is_api(request) else PlainTextResponse(f"{message}\n", 421)


def _set_cookie(message: Message, request: Request, name: str, value: str, until: int) -> None:
    path = root_of(request) or "/"
    secure = "; Secure" if request.url.scheme == "https" else ""
    age = "" if until else "; Max-Age=0"  # otherwise it ends with the browser, or when its signature expires
    MutableHeaders(scope=message).append(
        "set-cookie", f"{name}={value}; Path={path}; HttpOnly; SameSite=Lax{secure}{age}"
    )


def guarded(send: Send) -> Send:
    """Return a `send` that adds the headers, and no-store unless it is a static file."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return sending
