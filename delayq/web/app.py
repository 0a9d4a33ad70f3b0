"""The dashboard as an ASGI application."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from delayq.errors import DelayqError
from delayq.web import error_pages, path_params, request_path
from delayq.web.access import AccessRouter
from delayq.web.api import page
from delayq.web.api.idempotency import KeptAnswers
from delayq.web.api.operation import ApiRoute
from delayq.web.api.table import OPERATIONS
from delayq.web.audit import Audit, logged
from delayq.web.auth import Login, User
from delayq.web.background_jobs import BackgroundJobs
from delayq.web.forgery import ForgeryCheck
from delayq.web.login_throttle import MOST_LINES, MOST_LINES_OF_ALL, LoginThrottle
from delayq.web.pages import PAGES
from delayq.web.poller import ServerPoller
from delayq.web.redaction import Redaction
from delayq.web.request_context import AROUND
from delayq.web.routes import Page
from delayq.web.security import SecurityMiddleware, SecurityRules, guarded
from delayq.web.servers import Places, patience, servers_of
from delayq.web.sessions import Sessions

GZIP_LEVEL = 6  # level 9 takes twice as long and saves 2 %


class Dashboard(Starlette):
    """The dashboard; `app` returns one. It connects at the first request.

    Run as its own server, it closes its connections by itself. If you mount it in another application, call `close` in
    that application's lifespan.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Routes and path parameters of an application around the dashboard must not reach its pages and audit lines.
        own: Scope = {**scope, "path_params": {}, "route": None, AROUND: scope.get("path_params", {})}
        if scope["type"] == "http":
            send = guarded(send)
            try:
                own = request_path.canonical(own)
            except ValueError as error:
                await PlainTextResponse(f"The path of this request is not valid: {error}.\n", 400)(scope, receive, send)
                return
        await super().__call__(own, receive, send)

    async def close(self) -> None:
        """Stop jobs, end live streams, and close the connections."""
        await self.state.jobs.close()
        for watch in self.state.watches.values():
            await watch.close()
        for server in self.state.servers.values():
            await server.close()


def app(
    servers: Places = None,
    *,
    prefix: str = "delayq",
    read_only: bool = False,
    login: Login | Callable[[Request], User | None] | None = None,
    audit: Audit | None = None,
    hosts: Sequence[str] = (),
    secret: str | None = None,
    interval: float = 2.0,
    redact: Sequence[str] = (),
) -> Dashboard:
    """Return the dashboard of one or more servers, with all queues on them.

    Args:
        servers: a URL or a client of redis.asyncio, or several, or a dictionary of them by name; None for DELAYQ_URL or
            the embedded store.
        prefix: the prefix of all keys.
        read_only: allow no changes.
        login: `Token` or `Users`; or, if the application around the dashboard knows its users, a function that takes a
            request and returns a `User`, or None to refuse access. None lets in everyone who can connect.
        audit: called with each audit line; by default, lines are logged.
        hosts: the host names to answer to, without ports; any if empty. If you listen on a loopback address, name its
            hosts: otherwise, other sites in the same browser can reach the dashboard through their own host names.
        secret: the key that signs sessions, the same for all processes that serve the same dashboard. If None, it is
            random, and everybody has to log in again after a restart. Logouts and the limit of wrong passwords hold in
            each process alone.
        interval: seconds between two looks at a server while anybody watches.
        redact: the names of payload fields and headers whose values no page shows.

    Raises:
        InvalidInput: an argument is invalid; the error names it.
    """
    redaction = Redaction(redact)
    known = servers_of(servers, prefix)
    sessions = Sessions(secret)
    rules = SecurityRules(login, read_only, [host.lower() for host in hosts])
    pages = (_bounded(route) for each in PAGES for route in each.ROUTES)
    routes: list[Page] = [*map(ApiRoute, OPERATIONS), *page.ROUTES, *pages]
    dashboard = Dashboard(
        middleware=[
            Middleware(GZipMiddleware, compresslevel=GZIP_LEVEL, exclude_content_types=()),  # all answers are text
            Middleware(SecurityMiddleware, rules=rules, sessions=sessions),
        ],
        exception_handlers={
            HTTPException: error_pages.refused,
            DelayqError: error_pages.refused,
            ClientDisconnect: error_pages.gone,
            Exception: error_pages.broken,
        },
    )
    dashboard.router = AccessRouter(routes, rules, ForgeryCheck(sessions, rules.hosts), _lifespan)
    state = dashboard.state
    state.route_by_name = {route.name: route for route in routes}
    state.servers = known
    state.watches = {name: ServerPoller(server, interval) for name, server in known.items()}
    state.redaction = redaction
    state.read_only, state.sessions, state.login = read_only, sessions, login
    state.has_logout = login is not None and not callable(login)
    state.attempts = LoginThrottle()
    state.refusals = LoginThrottle(MOST_LINES), LoginThrottle(MOST_LINES_OF_ALL)
    state.streams = {}
    state.patience = patience(interval)
    state.jobs = BackgroundJobs()
    state.kept_answers = KeptAnswers()
    state.audit = audit or logged
    state.nav = [each.NAV for each in PAGES if hasattr(each, "NAV")]
    state.tabs = [each.TAB for each in PAGES if hasattr(each, "TAB")]
    return dashboard


def _bounded(route: Page) -> Page:
    """Make a page end with an error when its server stops answering; a form is only handled if the server answers.

    The work of a form is not cancelled: nobody would know how far it came. A job can always be stopped.
    """
    if "server" not in route.param_convertors or route.name == "stop":
        return route

    async def endpoint(request: Request) -> Any:
        server = path_params.server_of(request)
        if request.method != "POST":
            return await server.while_it_answers(route.endpoint(request))
        await server.check_answers()
        return await route.endpoint(request)

    return Page(route.right, route.path, endpoint, name=route.name, method=route.method)


@contextlib.asynccontextmanager
async def _lifespan(dashboard: Dashboard) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await dashboard.close()
