"""What went wrong with a call of the HTTP API: an answer as RFC 9457 describes it."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from starlette.responses import Response
from starlette.types import Message, Send

from delayq.web.forms import Refusal

MEDIA_TYPE = "application/problem+json"

MEANT = {
    404: "The API has no such path: /api/v1/openapi.json lists them.",
    405: "This path is not asked with that method: /api/v1/openapi.json lists them.",
    413: "The request is too large.",
}
"""What the API says where the framework gives only the name of a status."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call was refused, or failed (RFC 9457).

    Attributes:
        type: always about:blank: the status says which kind of problem it is.
        title: the name of the status.
        status: the status of HTTP.
        detail: what is wrong, and what to do.
        field: the field of the request that is wrong, such as messages[3].id; absent where it is none.
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


def speaking(send: Send) -> Send:
    """Return a `send` that turns the framework's own answer to a request that is too large into a problem."""
    text = _encoded(Refusal(413, MEANT[413]))
    is_replaced = False

    async def sending(message: Message) -> None:
        nonlocal is_replaced
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            is_replaced = message["status"] == 413 and headers[b"content-type"].startswith(b"text/plain")
            if is_replaced:
                length = str(len(text)).encode()
                new = {b"content-type": MEDIA_TYPE.encode(), b"content-length": length}
                message = {**message, "headers": list((headers | new).items())}
        elif is_replaced:
            message = {**message, "body": text}
        await send(message)

    return sending
