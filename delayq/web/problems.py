"""Errors of the HTTP API, as RFC 9457 defines them."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from starlette.responses import Response

from delayq.web.forms import Refusal

MEDIA_TYPE = "application/problem+json"

MEANT = {
    404: "The API has no such path: see /api/v1/openapi.json.",
    405: "This path does not support that method: see /api/v1/openapi.json.",
}
"""The API's texts for errors of the framework, which only name a status."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was refused or failed (RFC 9457).

    Attributes:
        type: always about:blank, since the status says what kind of problem it is.
        title: the name of the status.
        status: the HTTP status.
        detail: what is wrong, and what to do.
        field: the invalid field of the request, such as messages[3].id; absent if there is none.
    """

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    field: str | msgspec.UnsetType = msgspec.UNSET


def answer(refusal: Refusal) -> Response:
    """Return a refusal as an answer."""
    return Response(_encoded(refusal), refusal.status, dict(refusal.headers), MEDIA_TYPE)


def _encoded(refusal: Refusal) -> bytes:
    status, text = HTTPStatus(refusal.status), refusal.text.encode(errors="backslashreplace").decode()
    problem = Problem(title=status.phrase, status=status, detail=text, field=refusal.field or msgspec.UNSET)
    return msgspec.json.encode(problem)
