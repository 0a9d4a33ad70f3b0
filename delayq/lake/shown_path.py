"""A path of a lake, as texts show it."""

from __future__ import annotations

import re

HIDDEN = "***"

_URI = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?]*)([^?]*)(\?.*)?", re.IGNORECASE | re.DOTALL)
_PLACE = re.compile(r"[\w.-]*(?::[0-9]{1,5})?")  # a bucket, or a host and a port
_PATH = re.compile(  # blanks and ? are legal in names of this machine; "-a KEY" and "?KEY" may be secrets
    r"""(?!//|\s|[^/]*(?:\s-|\?.))(?:[a-z][a-z0-9]*:(?=/[\w./=%-]*\Z))?[^/:=;,#@"']*(?:/.*)?""",
    re.IGNORECASE | re.DOTALL,
)
_OPEN = ("region", "scheme", "endpoint_override")  # options that are no secrets


def shown(path: str) -> str:
    """Return a path for a log or an error: ``***`` for a login and options in it, such as ``s3://KEY:SECRET@bucket``.

    The secret of a login may hold a ``/`` by mistake; then all but the scheme is hidden.
    """
    match = _URI.fullmatch(path)
    if match is None:
        return path if _PATH.fullmatch(path) else HIDDEN
    scheme, authority, inner, query = match.groups(default="")
    login, at, place = authority.rpartition("@")
    if not _PLACE.fullmatch(place) or re.search("[@#]", inner):
        return f"{scheme}://{HIDDEN}"
    if ":" in login:
        login = HIDDEN
    options = "&".join(map(_shown_option, query[1:].split("&")))
    return f"{scheme}://{login}{at}{place}{inner}{query[:1]}{options}"


def _shown_option(option: str) -> str:
    name, _, value = option.partition("=")
    return option if name in _OPEN and re.fullmatch(r"[\w.:/-]*", value) else HIDDEN if option else ""
