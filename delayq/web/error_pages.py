"""What went wrong, as a page that tells what to do; never with a secret, and never with what only the log may tell."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from delayq.errors import DelayqError, InvalidInput, ServerError, StoreError
from delayq.log import log
from delayq.web import audit, render

RETRY_SECONDS = 5


def page(request: Request, status: int, text: str) -> HTMLResponse:
    """Return a page that tells what is wrong; of an action, an audit line tells it, too."""
    audit.note_refusal(request, text, "refused" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "failed")
    answer = render.page(request, "failing.html", status, title=HTTPStatus(status).phrase, text=text)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        answer.headers["retry-after"] = str(RETRY_SECONDS)
    return answer


def refused(request: Request, error: Exception) -> HTMLResponse:
    """Tell of an HTTPException."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    told = error.detail if isinstance(error, HTTPException) else ""
    text = _MEANT.get(status, told) if told == HTTPStatus(status).phrase else told
    return page(request, status, text)


def failed(request: Request, error: Exception) -> HTMLResponse:
    """Tell of a DelayqError; its text names what to do, and has no secrets."""
    return page(request, status_of(error), str(error))


def broken(request: Request, error: Exception) -> HTMLResponse:
    """Tell of a bug, without its details."""
    log.error("dashboard failed", path=request.url.path, exc_info=error)
    return page(request, 500, "The dashboard has failed here: its log tells more.")


def status_of(error: Exception) -> int:
    """Return the HTTP status for an error."""
    if isinstance(error, InvalidInput):
        return 400
    return 503 if isinstance(error, ServerError | StoreError) else 409 if isinstance(error, DelayqError) else 500


_MEANT = {404: "There is no such page.", 405: "This page is not asked for so."}
