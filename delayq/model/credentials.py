"""Passwords in the place of a name, an id or a path, which are shown: such a text is refused without being shown."""

from __future__ import annotations

import re

MOST = 4096
"""Characters that are looked at: more than a name, an id or most paths may have."""

_CONNECTION = (
    r"\b(?:password|passwd|access_?key)(?:[\"']\s*:|[\"']?\s*=)"
    r"|\b(?:redis|valkey|keydb)-cli\s|(?:^|\s)(?:-a|--pass)\s"
)
_COLON, _AT, _SLASHES = r"(?::|%(?:25)*3a)", r"(?:@|%(?:25)*40)", r"(?://|%(?:25)*2f%(?:25)*2f)"
_SERVER = rf"\b(?:rediss?|valkeys?)(?:\+[a-z]+)?{_COLON}{_SLASHES}"

# Patterns are text, which `re` compiles at its first use: programs start faster, as most names do not need them.
_IN_PATH = rf"(?i){_CONNECTION}|{_COLON}{_SLASHES}"
_IN_ID = rf"(?i){_CONNECTION}|{_SERVER}|{_COLON}{_SLASHES}[^/?#\s]{{0,512}}{_AT}"
_IN_EACH = re.compile(r"[:=%\s]")


def may_hold_password(text: str) -> bool:
    """Whether a text that should be a path is a URL or a connection string."""
    text = text[:MOST]
    return _IN_EACH.search(text) is not None and re.search(_IN_PATH, text) is not None


def is_unfit_name(text: str) -> bool:
    """Whether a text that should be a name is a URL, a connection string or ``user:password@host``."""
    text = text[:MOST]
    if _IN_EACH.search(text) is None:
        return False
    colon = re.search(_COLON, text, re.IGNORECASE)
    return may_hold_password(text) or (colon is not None and re.search(_AT, text[colon.end() :]) is not None)


def is_unfit_id(text: str) -> bool:
    """Whether a text that should be an id is a server's URL, another URL with a login, or a connection string.

    Other ids may have a colon before an ``@``, such as ``welcome:ann@example.org``.
    """
    if text.isprintable() and not (
        "//" in text or "=" in text or "%" in text or " " in text or '"' in text or "'" in text
    ):  # most ids, and each sent message may have one: a tenth of the time of the expression
        return False
    return re.search(_IN_ID, text[:MOST]) is not None
