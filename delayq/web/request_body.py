"""Reads the body of a request, up to a limit."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request

MOST = 4 << 20  # bytes: a payload of a megabyte, percent-encoded


async def read(request: Request, most: int = MOST) -> bytes:
    """Return the body, of at most this many bytes.

    Raises:
        HTTPException: 413 if it is larger; then the rest is not read.
        ClientDisconnect: it did not arrive as a whole.
    """
    too_large = HTTPException(413, f"The request is larger than {most:,} bytes.")
    length, body = request.headers.get("content-length", ""), bytearray()
    if length.isdecimal() and (len(length) > len(str(most)) or int(length) > most):
        raise too_large
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise too_large
    return bytes(body)
