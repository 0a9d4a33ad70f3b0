"""What to write instead of a text that a portal, a console or a shell shows for a URL."""

from __future__ import annotations

import re

LONGEST = 4096  # characters that are looked at

PLAIN = "redis://:KEY@host:6379"
TLS = "rediss://:KEY@host:6380"
ENCODED = "with / ? # @ & % in KEY percent-encoded"


def remedy(text: str) -> str | None:
    """Return what is wrong with a text that is not a URL, and the right form; None if the text is of no known kind.

    No part of the text is in what is returned, since any part of it may be a password.
    """
    text = text[:LONGEST]
    what = next((what for pattern, what in _KINDS if pattern.search(text)), None)
    return what and what.format(form=TLS if _TLS.search(text) else PLAIN)


_TLS = re.compile(r"\b(?:ssl|tls)[\"']?\s*[=:]\s*true\b|:6380\b|--tls\b|\brediss\b", re.IGNORECASE)
_NAMES = "server|endpoint|hosts?|hostname|user|username|password|passwd|pwd|auth|(?:access|primary)_?key|ssl|tls"
CONNECTION_STRING = re.compile(
    rf"(?:^|[,;{{\s/])(?:(?:{_NAMES})(?:\s*=|:\s)|[\"'](?:{_NAMES})[\"']\s*:)", re.IGNORECASE
)
"""A pair of a name and a value, as other clients have them."""

_KINDS = [
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), what)
    for pattern, what in (
        (
            r"\b(?:redis|valkey|keydb)-cli\b|(?:^|\s)(?:-a|-u|--pass|--uri)\s",
            f"is a command line: give only the URL after its -u, or write {{form}} from its -h, -p and -a, {ENCODED}",
        ),
        (r"^\s*jdbc:", f"is a JDBC URL: write {{form}}, {ENCODED}"),
        (
            r"^\s*(?:export\s+|set\s+|\$env:)?[a-z_][\w.]*\s*[=:]\s*[\"']?[a-z][a-z0-9+.-]*://",
            "begins with a name: give only the URL after it, as in {form}",
        ),
        (r"^\s*[\"'`<\u2018-\u201d]|[\"'`>\u2018-\u201d]\s*$", "has quotes around it: leave them out, as in {form}"),
        (
            r"^[a-z0-9+.-]*%(?:25)*3a%(?:25)*2f|://[^/@]*%(?:25)*(?:3a|40)[^@]*$",
            f"is percent-encoded as a whole: write {{form}}, {ENCODED}",
        ),
        (
            CONNECTION_STRING.pattern,
            f"is the connection string of another client, as Azure's portal shows it: write {{form}}, {ENCODED}",
        ),
        (
            r"^[a-z0-9+]+://.*\s",
            "contains a space or a line break: leave it out, or write %20 or %0A if it is part of a password",
        ),
        (r"^(?!.*://)", f"has no scheme: write {{form}}, or without a password redis://host:6379, {ENCODED}"),
    )
]
"""The first that fits; each text says what is wrong and what to do."""
