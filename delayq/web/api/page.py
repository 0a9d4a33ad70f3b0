"""The documentation of the API: a page for people, and the OpenAPI document for programs."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from delayq.web import render
from delayq.web.api import openapi
from delayq.web.api.operation import ROOT
from delayq.web.api.table import OPERATIONS
from delayq.web.auth import Login
from delayq.web.request_context import root_of
from delayq.web.routes import VIEW, Page


async def api(request: Request) -> Response:
    """Show all operations with their requests and answers."""
    tags: dict[str, list[object]] = {}
    for each in OPERATIONS:
        tags.setdefault(each.tag, []).append(each)
    root = f"{root_of(request)}{ROOT}"
    return render.page(
        request,
        "api.html",
        about=openapi.ABOUT,
        root=root,
        tags=tags,
        schemas=openapi.components(),
        kind_of=openapi.kind_of,
        refusals=openapi.REFUSALS,
        scheme=_scheme(request),
    )


async def document(request: Request) -> Response:
    """Answer with the OpenAPI document."""
    made = openapi.document(root_of(request), _scheme(request))
    return Response(msgspec.json.encode(made), media_type="application/json")


def _scheme(request: Request) -> str | None:
    """Return how programs log in; None if they need not, or if the application around the dashboard decides."""
    login: Login | None = request.app.state.login if request.app.state.has_logout else None
    return None if login is None else "basic" if login.asks_name else "bearer"


ROUTES = [
    Page(VIEW, f"{ROOT}/", api, name="api"),
    Page(VIEW, f"{ROOT}/openapi.json", document, name="openapi", for_programs=True),
]
