"""The files of the pages: scripts, styles and images. They are few and small, so they are read once."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from delayq.web import render
from delayq.web.routes import OPEN, Page

FOREVER = "public, max-age=31536000, immutable"


@cache
def contents() -> Mapping[str, bytes]:
    """Return the files by name."""
    return {each.name: each.read_bytes() for each in files("delayq.web").joinpath("static").iterdir()}


async def static(request: Request) -> Response:
    """Answer with a file; browsers keep it indefinitely if its URL has the digest of its content."""
    name = request.path_params["file"]
    if name not in contents():
        raise HTTPException(404)
    is_hashed = request.url.query == render.digest(name)
    kind = mimetypes.guess_type(name)[0]
    return Response(contents()[name], media_type=kind, headers={"cache-control": FOREVER if is_hashed else "no-cache"})


ROUTES = [Page(OPEN, "/static/{file:name}", static, name="static", has_session=False)]
