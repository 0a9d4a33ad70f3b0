"""The security middleware: it checks each request before any page, and refuses unauthorized ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from delayq.web import audit, error_pages, problems, render
from delayq.web.auth import Login, User
from delayq.web.forms import Refusal
from delayq.web.program_login import READING, ProgramLogin, credentials
from delayq.web.request_context import RequestContext, client_address, cookie_name, enter, is_api, path_of
from delayq.web.sessions import Sessions

MOST_FIELDS = 1000
"""Fields of a form: twice as many as a page of messages has. Reading a million, which would fit, takes seconds."""

AROUND = "delayq.around"
"""The key in a scope for the path parameters of the application around the dashboard; its `login` may need them."""

LOCAL = User("local")
"""The user if there is no login."""


@dataclass(frozen=True)
class SecurityRules:
    """The settings of the middleware.

    Attributes:
        login: how users log in; None if nobody needs to; or a function that returns the user of a request, or None.
        read_only: allow no changes.
        hosts: the host names to answer to, without ports; any if empty.
    """

    login: Login | Callable[[Request], User | None] | None
    read_only: bool
    hosts: Sequence[str]


class SecurityMiddleware:
    """Refuses wrong host names, requests without a login, forged requests, and changes by read-only users."""

    def __init__(self, app: ASGIApp, rules: SecurityRules, sessions: Sessions) -> None:
        self._app = app
        self._rules = rules
        self._sessions = sessions
        self._programs = ProgramLogin()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # there are no websockets here
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
        # The router changes the path when it finds a file.
        has_cookie = not (path_of(request).startswith("/static/") or is_api(request))
        answer: ASGIApp = await self._login(request, visit) or await self._refusal(request, visit) or self._app

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and has_cookie:
                after = self._sessions.written(visit.session)
                if visit.ended:
                    _set_cookie(message, request, cookie, "", 0)
                elif held is None or after != before or before != held:
                    _set_cookie(message, request, cookie, after, visit.session.until)
            await send(message)

        await answer(scope, receive, sending)

    async def _login(self, request: Request, visit: RequestContext) -> Response | None:
        """Find the user; return an answer if a program has to wait before it can log in."""
        login = self._rules.login
        if login is None:
            visit.user = LOCAL
        elif callable(login):
            visit.user = login(Request({**request.scope, "path_params": request.scope[AROUND]}))
        elif (given := credentials(request, login)) is not None and (is_api(request) or not visit.session.user):
            refusal = None
            try:
                visit.user = await self._programs.user(request, login, given)
            except HTTPException as error:
                refusal = error
            if visit.user is None:
                outcome = f"refused: {refusal.detail}" if refusal else "refused"
                line = {"who": given.name, "action": "login", "from": client_address(request), "outcome": outcome}
                audit.note(request, line)
            if refusal is not None and is_api(request):
                return error_pages.refused(request, refusal)
        elif visit.session.user:
            visit.user = login.user(visit.session.user)
        visit.may_act = visit.user is not None and visit.user.role == "operator" and not self._rules.read_only
        return None

    async def _refusal(self, request: Request, visit: RequestContext) -> Response | None:
        path = path_of(request)
        is_open = path == "/login" or path.startswith("/static/")  # these show and change nothing of a server
        if visit.user is None and not is_open:
            return self._ask_for_login(request)
        if request.method in READING:
            return None
        if is_api(request):
            return self._api_refusal(request, visit)
        if request.method != "POST":
            told = f"The dashboard does not support the method {request.method}."
            return error_pages.refused(request, HTTPException(405, told, {"allow": "GET, HEAD, POST"}))
        try:
            visit.form = await _form(request)
        except ValueError:
            return error_pages.page(request, 400, f"The form has more than {MOST_FIELDS} fields.")
        except Exception:  # an outer layer answers
            audit.note_refusal(request, "The form is too large, or did not arrive.")
            raise
        if not self._is_own(request, visit):
            return error_pages.page(
                request, 403, "The form has expired or comes from another site: go back, reload and try again."
            )
        if not visit.may_act and not is_open and path != "/logout":
            return error_pages.page(request, 403, "You have read-only access.")
        return None

    def _api_refusal(self, request: Request, visit: RequestContext) -> Response | None:
        """Return the answer if the API refuses a request.

        Before a browser sends JSON to another site, it asks that site, and the dashboard denies it. A browser says
        where a request comes from. It adds cookies and stored passwords by itself, but never a bearer token, so a
        request with one is deliberate. Every other request from a browser needs the token of its session.
        """
        if request.method not in (allowed := _allowed(request)):
            return error_pages.refused(request, HTTPException(405, headers={"allow": ", ".join(sorted(allowed))}))
        if not self._is_same_site(request):
            return error_pages.page(request, 403, "The request comes from another site.")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return error_pages.page(request, 415, "Send JSON, with the header Content-Type: application/json.")
        is_bearer = request.headers.get("authorization", "").lower().startswith("bearer ")
        is_of_browser = any(name in request.headers for name in ("cookie", "origin", "sec-fetch-site"))
        token = request.headers.get("x-csrf-token", "")
        if is_of_browser and not is_bearer and not self._sessions.is_token(visit.session, token):
            return error_pages.page(
                request, 403, "Requests from a browser need the header X-CSRF-Token, with the token of a page's form."
            )
        if not visit.may_act:
            return error_pages.page(request, 403, "You have read-only access.")
        return None

    def _ask_for_login(self, request: Request) -> Response:
        if self._rules.login is None or callable(self._rules.login):
            return error_pages.page(request, 403, "You have no access to this dashboard.")
        if is_api(request):
            scheme, kind = (
                ("Basic", "a name and a password") if self._rules.login.asks_name else ("Bearer", "the token")
            )
            told = f"Log in: send {kind} in the Authorization header ({scheme})."
            challenge = {"www-authenticate": f'{scheme} realm="delayq"'}
            return error_pages.refused(request, HTTPException(401, told, challenge))
        if request.method != "GET" or "x-requested-with" in request.headers:  # live.js: the page reloads
            return error_pages.page(request, 401, "Log in first.")
        wanted = path_of(request) + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(render.url(request, "login") + f"?{render.query(next=wanted)}", 303)

    def _is_host(self, request: Request) -> bool:
        return not self._rules.hosts or _hostname(request.headers.get("host", "")) in self._rules.hosts

    def _is_own(self, request: Request, visit: RequestContext) -> bool:
        """Whether a POST comes from a page of the dashboard in the same session."""
        token = request.headers.get("x-csrf-token") or visit.form.get("csrf", "")
        return self._is_same_site(request) and self._sessions.is_token(visit.session, token)

    def _is_same_site(self, request: Request) -> bool:
        """Whether no header says that another site has sent a request."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "null")
        if site not in {None, "same-origin"}:
            return False
        # Over plain HTTP from another machine, browsers send no Sec-Fetch-Site, and "null" if a page has no referrer.
        return origin == "null" or self._is_own_origin(request, origin)

    def _is_own_origin(self, request: Request, origin: str) -> bool:
        return (
            urlsplit(origin).netloc == request.headers.get("host")
            or _hostname(urlsplit(origin).netloc) in self._rules.hosts
        )


def _allowed(request: Request) -> set[str]:
    """Return the methods of a path; for an unknown path, those of an operation that acts."""
    routes = (each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE)
    return {method for each in routes for method in getattr(each, "methods", None) or ()} or {"POST"}


def _wrong_host(request: Request) -> Response:
    told = "The dashboard does not answer to this host name."
    return problems.answer(Refusal(421, told)) if is_api(request) else PlainTextResponse(f"{told}\n", 421)


def _set_cookie(message: Message, request: Request, name: str, value: str, until: int) -> None:
    path = request.scope.get("root_path") or "/"
    secure = "; Secure" if request.url.scheme == "https" else ""
    age = "" if until else "; Max-Age=0"  # otherwise it ends with the browser, or when its signature expires
    MutableHeaders(scope=message).append(
        "set-cookie", f"{name}={value}; Path={path}; HttpOnly; SameSite=Lax{secure}{age}"
    )


def _hostname(host: str) -> str:
    """Return the name in a Host header, without the port; an IPv6 address keeps its brackets."""
    return (host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]).lower()


async def _form(request: Request) -> QueryParams:
    """Read a form; raises ValueError if it has too many fields."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return QueryParams()
    text = (await request.body()).decode("latin-1")
    return QueryParams(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS))
