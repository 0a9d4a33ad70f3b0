"""Access: the router finds the route of a request, and checks that its user has the right that this route declares.

A route that declares no right is closed to everybody. A path without a route needs a login, so strangers do not learn
which paths exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Router
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from delayq.web import audit, error_pages, render
from delayq.web.auth import User
from delayq.web.forgery import ForgeryCheck
from delayq.web.program_login import READING, ProgramLogin, credentials
from delayq.web.request_context import AROUND, client_address, is_api, path_of, visit
from delayq.web.routes import ACT, OPEN, VIEW
from delayq.web.security import SecurityRules

LOCAL = User("local")
"""The user if there is no login."""


class AccessRouter(Router):
    """Finds the route of a request and its user, and refuses what this user may not do.

    Starlette's `requires` is not used, because one could forget to decorate an endpoint with it.
    """

    def __init__(
        self, routes: Sequence[BaseRoute], rules: SecurityRules, forgery: ForgeryCheck, lifespan: Lifespan[Any]
    ) -> None:
        super().__init__(routes, lifespan=lifespan)
        self._rules = rules
        self._forgery = forgery
        self._programs = ProgramLogin()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await super().app(scope, receive, send)
        elif scope["type"] != "http":  # there are no websockets here
            await self.not_found(scope, receive, send)
        else:
            route, of_route, methods = self._matched(scope)
            scope["route"], scope["path_params"] = route, of_route.get("path_params", {})
            request = Request(scope, receive)
            answer = await self._login(request) or await self._refusal(request, methods)
            chosen: ASGIApp = answer or (super().app if route is None else route.handle)
            await chosen(scope, receive, send)

    def _matched(self, scope: Scope) -> tuple[BaseRoute | None, Scope, set[str]]:
        """Return the route of a request and what it adds to the scope.

        If all routes of the path are for other methods, return the first one, and these methods.
        """
        others: list[tuple[BaseRoute, Scope]] = []
        for route in self.routes:
            match, of_route = route.matches(scope)
            if match is Match.FULL:
                return route, of_route, set()
            if match is Match.PARTIAL:
                others.append((route, of_route))
        first, of_route = others[0] if others else (None, {})
        return first, of_route, {method for route, _ in others for method in getattr(route, "methods", None) or ()}

    async def _login(self, request: Request) -> Response | None:
        """Find the user; return an answer if a program has to wait before it can log in."""
        login, seen = self._rules.login, visit(request)
        if login is None:
            seen.user = LOCAL
        elif callable(login):
            seen.user = login(Request({**request.scope, "path_params": request.scope[AROUND]}))
        elif (given := credentials(request, login)) is not None and (is_api(request) or not seen.session.user):
            refusal = None
            try:
                seen.user = await self._programs.user(request, login, given)
            except HTTPException as error:
                refusal = error
            if seen.user is None:
                outcome = f"refused: {refusal.detail}" if refusal else "refused"
                line = {"who": given.name, "action": "login", "from": client_address(request), "outcome": outcome}
                audit.note(request, line)
            if refusal is not None and is_api(request):
                return error_pages.refused(request, refusal)
        elif seen.session.user:
            seen.user = login.user(seen.session.user)
        request.state.is_user = seen.user is not None  # the server keeps the connections of users when it is full
        seen.may_act = seen.user is not None and seen.user.role == "operator" and not self._rules.read_only
        return None

    async def _refusal(self, request: Request, methods: set[str]) -> Response | None:
        """Return the answer if the user may not do this.

        Raises:
            HTTPException: 405 if the path is for other `methods`; 413 if a form is too large.
        """
        route, seen = request.scope["route"], visit(request)
        right = VIEW if route is None else getattr(route, "right", None)
        if right is None:
            return error_pages.page(request, 403, "Nobody may use this path: its route declares no right.")
        if right is not OPEN and seen.user is None:
            return self._ask_for_login(request)
        if methods:
            raise HTTPException(405, headers={"allow": ", ".join(sorted(methods))})
        if route is not None and request.method not in READING and (why := await self._forgery.found(request, right)):
            return why
        return (
            error_pages.page(request, 403, "You have read-only access.") if right is ACT and not seen.may_act else None
        )

    def _ask_for_login(self, request: Request) -> Response:
        if self._rules.login is None or callable(self._rules.login):
            return error_pages.page(request, 403, "You have no access to this dashboard.")
        is_scrape = getattr(request.scope["route"], "name", "") == "metrics"
        if is_api(request) or is_scrape:  # a program cannot use the form
            scheme, kind = (
                ("Basic", "a name and a password") if self._rules.login.asks_name else ("Bearer", "the token")
            )
            message = f"Log in: send {kind} in the Authorization header ({scheme})."
            challenge = {"www-authenticate": f'{scheme} realm="delayq"'}
            return error_pages.refused(request, HTTPException(401, message, challenge))
        if request.method != "GET" or "x-requested-with" in request.headers:  # live.js: the page reloads
            return error_pages.page(request, 401, "Log in first.")
        wanted = path_of(request) + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(render.url(request, "login") + f"?{render.query(next=wanted)}", 303)
