"""Requests that another site makes a browser send are refused: each form and each POST of a browser has a token."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from delayq.web import error_pages, request_body
from delayq.web.request_context import is_api, visit
from delayq.web.routes import ACT, Right
from delayq.web.sessions import Sessions

MOST_FIELDS = 1000
"""Fields of a form: twice as many as a page of messages has. Reading a million, which would fit, takes seconds."""

MOST_OPEN = 8 * 1024
"""Bytes of a form of somebody who may not act, such as a login, or of another site."""


class ForgeryCheck:
    """Checks requests that may change something.

    Args:
        sessions: they make the tokens.
        hosts: the host names of the dashboard, without ports.
    """

    def __init__(self, sessions: Sessions, hosts: Sequence[str]) -> None:
        self._sessions = sessions
        self._hosts = hosts

    async def found(self, request: Request, right: Right) -> Response | None:
        """Read the form, if there is one, and return the answer if the request may be forged.

        Raises:
            HTTPException: 413 if the form is too large.
        """
        return self._of_program(request) if is_api(request) else await self._of_page(request, right)

    def _of_program(self, request: Request) -> Response | None:
        """Return the answer if the API refuses a request.

        Before a browser sends JSON to another site, it asks that site, and the dashboard denies it. A browser says
        where a request comes from. It adds cookies and stored passwords by itself, but never a bearer token, so a
        request with one is deliberate. Every other request from a browser needs the token of its session.
        """
        if not self._is_same_site(request):
            return error_pages.page(request, 403, "The request comes from another site.")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return error_pages.page(request, 415, "Send JSON, with the header Content-Type: application/json.")
        is_bearer = request.headers.get("authorization", "").lower().startswith("bearer ")
        is_of_browser = any(name in request.headers for name in ("cookie", "origin", "sec-fetch-site"))
        if is_of_browser and not is_bearer and not self._has_token(request, ""):
            return error_pages.page(
                request, 403, "Requests from a browser need the header X-CSRF-Token, with the token of a page's form."
            )
        return None

    async def _of_page(self, request: Request, right: Right) -> Response | None:
        seen, is_same_site = visit(request), self._is_same_site(request)
        may_be_large = right is ACT and seen.may_act and is_same_site
        try:
            seen.form = await _form(request, request_body.MOST if may_be_large else MOST_OPEN)
        except ValueError:
            return error_pages.page(request, 400, f"The form has more than {MOST_FIELDS:,} fields.")
        if not (is_same_site and self._has_token(request, seen.form.get("csrf", ""))):
            return error_pages.page(
                request, 403, "The form has expired or comes from another site: go back, reload and try again."
            )
        return None

    def _has_token(self, request: Request, in_form: str) -> bool:
        return self._sessions.is_token(visit(request).session, request.headers.get("x-csrf-token") or in_form)

    def _is_same_site(self, request: Request) -> bool:
        """Whether no header says that another site has sent a request."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "null")
        if site not in {None, "same-origin"}:
            return False
        # Over plain HTTP from another machine, browsers send no Sec-Fetch-Site, and "null" if a page has no referrer.
        return origin == "null" or self._is_own_origin(request, origin)

    def _is_own_origin(self, request: Request, origin: str) -> bool:
        try:
            place = urlsplit(origin).netloc
        except ValueError:
            return False
        return place == request.headers.get("host") or hostname(place) in self._hosts


def hostname(host: str) -> str:
    """Return the name in a Host header, without the port; an IPv6 address keeps its brackets."""
    return (host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]).lower()


async def _form(request: Request, most: int) -> QueryParams:
    """Read a form of at most this many bytes; raises ValueError if it has too many fields, or HTTPException."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return QueryParams()
    text = (await request_body.read(request, most)).decode("latin-1")
    return QueryParams(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS))
