"""Errors as pages, or as problems of the API: they say what to do, and reveal no secrets or internals."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from http import HTTPStatus
from typing import Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from delayq.errors import DelayqError, InvalidInput, ServerError, StoreError
from delayq.log import log
from delayq.web import audit, path_params, problems, render
from delayq.web.forms import InvalidField, Refusal
from delayq.web.request_context import is_api, visit

RETRY_SECONDS = 5
PASSING = {HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE}
"""The statuses of forms that may succeed if they are sent again."""

Endpoint: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]

_MEANT = {
    404: "There is no such page.",
    405: "This page does not support that method.",
}


def back_on(page: Endpoint) -> Callable[[Endpoint], Endpoint]:
    """Make an endpoint that refuses its form answer with the page of the form and what was typed.

    Args:
        page: the function that shows the page; if it fails, the answer is only the reason.
    """

    def around(endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        async def answer(request: Request) -> Response:
            try:
                return await endpoint(request)
            except (DelayqError, HTTPException) as error:
                known, refusal = visit(request), _refusal(error)
                _note(request, refusal)
                known.refusal = known.refusal or refusal
                try:
                    return await _while_it_answers(request, page)
                except (DelayqError, HTTPException):
                    known.refusal = None
                    raise error from None

        return answer

    return around


def page(request: Request, status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a page that says what is wrong; for an action, also write an audit line."""
    return _page(request, Refusal(status, text, headers=_headers(status) if headers is None else headers))


def refused(request: Request, error: Exception) -> Response:
    """Show an HTTPException or a DelayqError; their texts say what to do, and hold no secrets."""
    return _page(request, _refusal(error, problems.MEANT if is_api(request) else _MEANT))


def gone(request: Request, error: Exception) -> Response:  # noqa: ARG001  # the signature of a handler
    """Note that the client left before it had sent all; nobody reads the answer."""
    return page(request, 400, "The request did not arrive as a whole.")


def broken(request: Request, error: Exception) -> Response:
    """Report a bug, without details."""
    if audit.is_worth_a_line(request):
        log.error("dashboard failed", path=request.url.path, exc_info=error)
    return page(request, 500, "Internal error: see the dashboard’s log.")


def status_of(error: Exception) -> int:
    """Return the HTTP status for an error."""
    if isinstance(error, InvalidInput):
        return 400
    return 503 if isinstance(error, ServerError | StoreError) else 409 if isinstance(error, DelayqError) else 500


async def _while_it_answers(request: Request, page: Endpoint) -> Response:
    if "server" not in request.path_params:
        return await page(request)
    return await path_params.server_of(request).while_it_answers(page(request))


def _page(request: Request, refusal: Refusal) -> Response:
    _note(request, refusal)
    if is_api(request):
        return problems.answer(refusal)
    status, form = refusal.status, visit(request).form
    can_be_sent_again = status in PASSING and visit(request).user is not None
    fields = [(name, value) for name, value in form.multi_items() if name != "csrf"] if can_be_sent_again else []
    answer = render.page(
        request, "error.html", status, title=HTTPStatus(status).phrase, text=refusal.text, fields=fields
    )
    answer.headers.update(refusal.headers)
    return answer


def _refusal(error: Exception, meant: Mapping[int, str] = _MEANT) -> Refusal:
    if isinstance(error, HTTPException):
        status, detail = error.status_code, error.detail
        text = meant.get(status, detail) if detail == HTTPStatus(status).phrase else detail
        return Refusal(status, text, headers=error.headers or _headers(status))
    status = status_of(error)
    return Refusal(status, str(error), error.field if isinstance(error, InvalidField) else "", _headers(status))


def _headers(status: int) -> dict[str, str]:
    return {"retry-after": str(RETRY_SECONDS)} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}


def _note(request: Request, refusal: Refusal) -> None:
    verdict = "refused" if refusal.status < HTTPStatus.INTERNAL_SERVER_ERROR else "failed"
    audit.note_refusal(request, refusal.text, verdict)
