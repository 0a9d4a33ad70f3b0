"""The path of a request in one canonical form. It is made before anything else looks at a request.

A server passes on a decoded path, in which ``a%2Fb`` has become ``a/b``, and the path as it was sent. Code that checks
one of them and acts on the other can be deceived, so only this module reads the path as it was sent.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.types import Scope

_SEGMENT = re.compile("(?:[!-$&-~]|%[0-9A-Fa-f]{2})*")
_QUOTED = str.maketrans({each: f"%{ord(each):02X}" for each in "%/?#"})
_FOREIGN = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")


def canonical(scope: Scope) -> Scope:
    """Return a scope with the canonical path, and without the path as it was sent.

    In the canonical path, each segment is decoded, except for ``% / ? #`` and bytes that are not UTF-8: so ``a%2Fb`` is
    one segment. The part of the path that is in ``root_path`` was matched by the application around the dashboard.

    Raises:
        ValueError: the path does not start with a slash; has an empty segment before its end, ``.`` or ``..``, a
            control character or a malformed escape; or the application around the dashboard has changed it.
    """
    root = scope.get("root_path", "")
    if _CONTROL.search(root):
        raise ValueError(f"it has a control character: {root!r}")
    below = _below(scope["path"], root)
    raw = scope.get("raw_path")  # optional in ASGI
    if raw is None:
        segments = below.split("/")[1:]
    else:
        segments = [_decoded(each) for each in _sent(raw.decode("latin-1").partition("?")[0], below)]
    for number, each in enumerate(segments, 1):
        if each in {".", ".."} or _CONTROL.search(each) or (not each and number < len(segments)):
            raise ValueError(f"it has an empty segment, a '.' or '..', or a control character: {each!r}")
    own = {**scope, "path": root + "".join(f"/{escaped(each)}" for each in segments)}
    own.pop("raw_path", None)
    return own


def escaped(segment: str) -> str:
    """Return a segment as in the canonical path."""
    return _FOREIGN.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", segment.translate(_QUOTED))


def unescaped(segment: str) -> str:
    """Return a segment of the canonical path as it was before `escaped`."""
    return unquote(segment, errors="surrogateescape")


def _below(path: str, root: str) -> str:
    """Return the decoded path below where the dashboard is mounted; raises ValueError if it is not one."""
    below = path.removeprefix(root) if path == root or path.startswith(f"{root}/") else path
    if below and not below.startswith("/"):
        raise ValueError("it does not start with a slash")
    return below or "/"


def _sent(raw: str, below: str) -> list[str]:
    """Return the segments, as they were sent, that the server decoded to `below`; raises ValueError."""
    if below == "/":
        return [""]
    if not raw.startswith("/"):
        raise ValueError("it does not start with a slash")
    segments = raw.split("/")
    first, length = len(segments), 0
    while first > 1 and length < len(below):
        first -= 1
        length += 1 + len(unquote(segments[first]))
    found = segments[first:]
    if below != "".join(f"/{unquote(each)}" for each in found):
        raise ValueError(f"the application around the dashboard has changed it to {below!r}")
    return found


def _decoded(segment: str) -> str:
    if not _SEGMENT.fullmatch(segment):
        raise ValueError("it has characters that must be percent-encoded")
    return unescaped(segment)
