"""The guard: looks at each request before any page does, and turns away what has no business here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from delayq.web import audit, error_pages, render
from delayq.web.auth import Login, Token, User
from delayq.web.request_context import RequestContext, client_address, cookie_name, enter
from delayq.web.sessions import Session, Sessions

READING = {"GET", "HEAD"}
MOST_FIELDS = 1000
"""Of a form: a page of messages has half as many. A million of them, which fit in it, would take seconds to read."""

AROUND = "delayq.around"
"""Where a scope holds what the path of the application around the dashboard names, for who knows users by it."""

LOCAL = User("local")
"""Who comes where no login is asked for."""


@dataclass(frozen=True)
class SecurityRules:
    """What the guard goes by.

    Attributes:
        login: how one logs in; None where nobody needs to, or a function that knows who asks, or that nobody does.
        read_only: nobody may act.
        hosts: the names, without a port, by which the dashboard may be asked for; any when empty.
    """

    login: Login | Callable[[Request], User | None] | None
    read_only: bool
    hosts: Sequence[str]


class SecurityMiddleware:
    """Turns away: another host's name, who has not logged in, forged requests, and changes by who may only look."""

    def __init__(self, app: ASGIApp, rules: SecurityRules, sessions: Sessions) -> None:
        self._app = app
        self._rules = rules
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # there are no websockets here
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        if not self._is_host(request):
            answer: ASGIApp = PlainTextResponse("This is not the address of the dashboard.\n", 421)
            await answer(scope, receive, send)
            return
        cookie = cookie_name(request)
        held = request.cookies.get(cookie)
        session = (self._sessions.read(held) if held else None) or self._sessions.new()
        visit = self._visit(request, session)
        enter(scope, visit)
        if visit.user is None and self._bearer(request) is not None:
            audit.note(
                request, {"who": "token", "action": "login", "from": client_address(request), "outcome": "refused"}
            )
        before = self._sessions.written(session)
        is_static = _path(request).startswith("/static/")  # the router changes the path once it has found the file
        answer = await self._refusal(request, visit) or self._app

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and not is_static:
                after = self._sessions.written(visit.session)
                if visit.ended:
                    _set_cookie(message, request, cookie, "", 0)
                elif held is None or after != before or before != held:
                    _set_cookie(message, request, cookie, after, visit.session.until)
            await send(message)

        await answer(scope, receive, sending)

    def _visit(self, request: Request, session: Session) -> RequestContext:
        login = self._rules.login
        if login is None:
            user: User | None = LOCAL
        elif callable(login):
            user = login(Request({**request.scope, "path_params": request.scope[AROUND]}))
        else:
            user = login.user(session.user) if session.user else self._program(request)
        may_act = user is not None and user.role == "operator" and not self._rules.read_only
        return RequestContext(session, user, self._sessions.token(session), may_act)

    def _bearer(self, request: Request) -> str | None:
        """Return the token in the request of a program that reads; None where there is none, or none is asked for."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        is_asked_for = isinstance(self._rules.login, Token) and request.method in READING
        return token if is_asked_for and scheme.lower() == "bearer" else None

    def _program(self, request: Request) -> User | None:
        """Return the user of a program that reads with the token; it may guess as often as a browser."""
        login, token = self._rules.login, self._bearer(request)
        if token is None or not isinstance(login, Token):
            return None
        attempts, address = request.app.state.attempts, client_address(request)
        user = None if attempts.begin(address) else login.user_with(token)
        if user is not None:
            attempts.forgive(address)
        return user

    async def _refusal(self, request: Request, visit: RequestContext) -> Response | None:
        path = _path(request)
        is_open = path == "/login" or path.startswith("/static/")  # where nothing of a server is shown or changed
        if visit.user is None and not is_open:
            return self._ask_for_login(request)
        if request.method in READING:
            return None
        if request.method != "POST":
            return error_pages.page(request, 405, f"{request.method} is not what the dashboard is asked with.")
        try:
            visit.form = await _form(request)
        except ValueError:
            return error_pages.page(request, 400, f"The form has more than {MOST_FIELDS} fields.")
        except Exception:  # which is told further out
            audit.note_refusal(request, "The form is too large, or did not arrive.")
            raise
        if not self._is_own(request, visit):
            return error_pages.page(
                request, 403, "The form is out of date, or of another site: go back, reload, try again."
            )
        if not visit.may_act and not is_open and path != "/logout":
            return error_pages.page(request, 403, "You may look, but not change anything.")
        return None

    def _ask_for_login(self, request: Request) -> Response:
        if self._rules.login is None or callable(self._rules.login):
            return error_pages.page(request, 403, "Whoever guards this dashboard does not know you.")
        if request.method != "GET" or "x-requested-with" in request.headers:  # live.js: the page reloads
            return error_pages.page(request, 401, "Log in first.")
        wanted = _path(request) + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(render.url(request, "login") + f"?{render.query(next=wanted)}", 303)

    def _is_host(self, request: Request) -> bool:
        return not self._rules.hosts or _hostname(request.headers.get("host", "")) in self._rules.hosts

    def _is_own(self, request: Request, visit: RequestContext) -> bool:
        """Whether a POST comes from a page of the dashboard, in the same session."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "null")
        if site not in {None, "same-origin"}:
            return False
        # A page that sends no referrer sends "null" as its origin where there is no Sec-Fetch-Site: by HTTP off-host.
        if origin != "null" and not self._is_own_origin(request, origin):
            return False
        token = request.headers.get("x-csrf-token") or visit.form.get("csrf", "")
        return self._sessions.is_token(visit.session, token)

    def _is_own_origin(self, request: Request, origin: str) -> bool:
        return (
            urlsplit(origin).netloc == request.headers.get("host")
            or _hostname(urlsplit(origin).netloc) in self._rules.hosts
        )


def _set_cookie(message: Message, request: Request, name: str, value: str, until: int) -> None:
    path = request.scope.get("root_path") or "/"
    secure = "; Secure" if request.url.scheme == "https" else ""
    age = "" if until else "; Max-Age=0"  # else it ends with the browser, or by what is signed
    MutableHeaders(scope=message).append(
        "set-cookie", f"{name}={value}; Path={path}; HttpOnly; SameSite=Lax{secure}{age}"
    )


def _path(request: Request) -> str:
    """The path below where the dashboard is mounted."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", "")) or "/"


def _hostname(host: str) -> str:
    """The name in a Host header, without its port; an IPv6 address keeps its brackets."""
    return (host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]).lower()


async def _form(request: Request) -> QueryParams:
    """Read a form; raises ValueError for one of too many fields."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return QueryParams()
    text = (await request.body()).decode("latin-1")
    return QueryParams(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS))
