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
    what = next((what for pattern, what in _KINDS if re.search(pattern, text, _FLAGS)), None)
    return what and what.format(form=TLS if re.search(_TLS, text, _FLAGS) else PLAIN)


# Patterns are text, which `re` compiles at its first use: programs start faster.
_TLS = r"\b(?:ssl|tls)[\"']?\s*[=:]\s*true\b|:6380\b|--tls\b|\brediss\b|^[a-z+.-]*(?:tls|ssl)://"
_NAMES = "server|endpoint|hosts?|hostname|user|username|password|passwd|pwd|auth|(?:access|primary)_?key|ssl|tls"
CONNECTION_STRING = rf"(?i)(?:^|[,;{{\s/])(?:(?:{_NAMES})(?:\s*=|:\s)|[\"'](?:{_NAMES})[\"']\s*:)"
"""A pair of a name and a value, as other clients have them."""

_FLAGS = re.IGNORECASE | re.DOTALL
_KINDS = [
    (
        r"\b(?:redis|valkey|keydb)-cli\b|(?:^|\s)(?:-a|-u|--pass|--uri)\s",
        f"is a command line: give only the URL after its -u, or write {{form}} from its -h, -p and -a, {ENCODED}",
    ),
    (r"^\s*jdbc:", f"is a JDBC URL: write {{form}}, {ENCODED}"),
    (
        r"^\s*\$\{?\w+\}?\s*$|\$\{\w+\}|^\s*%\w+%\s*$",
        "has the name of a variable, not its value: in a shell, put it between double quotes or no quotes",
    ),
    (
        r"^\s*[\"'`<\u2018-\u201d](?![^:]*[\"']\s*:)|^[^\"'{\[]*[\"'`>\u2018-\u201d]\s*$",
        "has quotes around it: leave them out, as in {form}",
    ),
    (
        r"^[\s\ufeff\u200b-\u200f\u2060]",
        "begins with a space or an invisible character: leave it out, as in {form}",
    ),
    (
        r"^(?![a-z][a-z0-9+.-]*://).*?[a-z][a-z0-9+.-]*://",
        "has other text before it, such as the name of a variable: give only the URL, as in {form}",
    ),
    (
        r"^(?!rediss?\+)[a-z+.-]*sentinels?://",
        "has an unknown scheme: write redis+sentinel://:KEY@host:26379/service, or rediss+sentinel:// with TLS",
    ),
    (
        r"^(?!rediss?\+)[a-z+.-]*cluster://",
        "has an unknown scheme: write redis+cluster://:KEY@host:6379, or rediss+cluster:// with TLS",
    ),
    (r"^[a-z+.-]+(?:unix|socket)://|^socket://", "has an unknown scheme: write unix:///path/of/socket"),
    (
        r"^(?:keydb|tcp|tls|ssl|redis[+.-](?:tls|ssl|tcp))://",
        "has an unknown scheme: write {form}, or without a password redis://host:6379",
    ),
    (
        r"^[a-z0-9+.-]*%(?:25)*3a%(?:25)*2f|://[^/@]*%(?:25)*(?:3a|40)[^@]*$",
        f"is percent-encoded as a whole: write {{form}}, {ENCODED}",
    ),
    (
        CONNECTION_STRING,
        f"is the connection string of another client, as Azure's portal shows it: write {{form}}, {ENCODED}",
    ),
    (
        r"^[a-z0-9+.-]+://.*\s",
        "contains a space or a line break: leave it out, or write %20 or %0A if it is part of a password",
    ),
    (r"^(?!.*[a-z0-9]://)", f"has no scheme: write {{form}}, or without a password redis://host:6379, {ENCODED}"),
]
"""The first that fits; each text says what is wrong and what to do."""
