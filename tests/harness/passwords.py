"""A password, the forms in which users give it, and whether a text shows it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import click

from delayq.errors import DelayqError
from delayq.model.server_url import SETTINGS

MARK = "Zq9xVw7KpL3m"  # in each password here; no part of it is in any other text
SHOWN = 6  # a part of so many characters counts as shown

MALFORMED = {
    "azure": "cache.example.org:6380,password={},ssl=True,abortConnect=False",
    "azure-reordered": "password={},ssl=True,cache.example.org:6380",
    "azure-spaces": "cache.example.org:6380, password = {}, ssl = True",
    "azure-scheme": "redis://cache.example.org:6380,password={},ssl=True",
    "azure-tls-scheme": "rediss://cache.example.org:6380,password={},ssl=True,abortConnect=False",
    "azure-lines": "cache.example.org:6380\npassword={}\nssl=True",
    "server": "server=127.0.0.1;password={}",
    "server-first": "password={};server=127.0.0.1:1",
    "semicolons": "redis://127.0.0.1:1;password={}",
    "semicolons-after-database": "redis://127.0.0.1:1/0;password={}",
    "semicolons-after-setting": "redis://127.0.0.1:1?socket_timeout=5;password={}",
    "semicolons-and-at": "redis://127.0.0.1:1;password=a@{}",
    "comma-and-at": "redis://127.0.0.1:1,password=a@{}",
    "comma-after-host": "redis://127.0.0.1:1,{}",
    "comma-after-database": "redis://127.0.0.1:1/0,{}",
    "sentinel-commas": "redis+sentinel://127.0.0.1:1,password={}/service",
    "sentinel-service": "redis+sentinel://127.0.0.1:1/service;password={}",
    "sentinel-database": "redis+sentinel://127.0.0.1:1/service/{}",
    "cluster-commas": "redis+cluster://127.0.0.1:1,password={}",
    "cluster-database": "redis+cluster://127.0.0.1:1/{}",
    "redis-cli-url": "redis-cli -u redis://default:{}@127.0.0.1:1",
    "redis-cli-tls": "redis-cli --tls -u redis://default:{}@127.0.0.1:1",
    "redis-cli-words": "redis-cli -h 127.0.0.1 -p 1 -a {}",
    "redis-cli-variable": "REDISCLI_AUTH={} redis-cli -h 127.0.0.1",
    "words": "-h 127.0.0.1 -a {}",
    "variable": "REDIS_URL=redis://:{}@127.0.0.1:1",
    "variable-quoted": "REDIS_URL='redis://:{}@127.0.0.1:1'",
    "export": 'export REDIS_URL="rediss://:{}@127.0.0.1:1"',
    "yaml": "url: redis://:{}@127.0.0.1:1",
    "yaml-password": "password: {}",
    "json": '{{"host": "127.0.0.1", "password": "{}"}}',
    "quotes": '"redis://:{}@127.0.0.1:1"',
    "apostrophes": "'redis://:{}@127.0.0.1:1'",
    "backticks": "`redis://:{}@127.0.0.1:1`",
    "brackets": "<redis://:{}@127.0.0.1:1>",
    "half-quoted": "redis://:{}@127.0.0.1:1'",
    "no-scheme": "127.0.0.1:1 {}",
    "no-scheme-login": "default:{}@127.0.0.1:1",
    "no-scheme-password": ":{}@127.0.0.1:1",
    "only-password": "{}",
    "one-slash": "redis:/:{}@127.0.0.1:1",
    "no-slashes": "redis::{}@127.0.0.1:1",
    "three-slashes": "redis:///:{}@127.0.0.1:1",
    "other-scheme": "http://user:{}@127.0.0.1",
    "yaml-list": "- REDIS_URL=redis://:{}@127.0.0.1:1",
    "json-url": '{{"url":"redis://:{}@127.0.0.1:1"}}',
    "leading-space": " redis://:{}@127.0.0.1:1",
    "scheme-of-others": "redis-sentinel://:{}@127.0.0.1:1/service",
    "scheme-in-capitals-no-at": "REDIS://:{}",
    "jdbc": "jdbc:redis://127.0.0.1:1?password={}",
    "jdbc-login": "jdbc:redis://user:{}@127.0.0.1:1",
    "encoded-as-a-whole": "redis%3A%2F%2F%3A{}%40127.0.0.1%3A1",
    "encoded-twice": "redis%253A%252F%252F%253A{}%2540127.0.0.1",
    "encoded-login": "redis://%3A{}%40127.0.0.1:1",
    "encoded-at": "redis://user:{}%40127.0.0.1",
    "no-at": "redis://user:{}",
    "no-at-with-database": "redis://:{}/0",
    "no-at-with-setting": "redis://:{}?db=0",
    "no-user-no-at": "redis://{}=",
    "slash": "redis://:{}/b@127.0.0.1:1",
    "slash-first": "redis://:12/{}@127.0.0.1:1",
    "slash-without-at": "redis://user:123/{}",
    "question": "redis://:{}?b@127.0.0.1:1",
    "question-first": "redis://:12?{}@127.0.0.1:1",
    "question-without-at": "redis://user:123?{}",
    "hash": "redis://:{}#b@127.0.0.1:1",
    "hash-first": "redis://:12#{}@127.0.0.1:1",
    "at-and-slash": "redis://:a@{}/b@127.0.0.1:1",
    "at-and-question": "redis://:a@{}?b@127.0.0.1:1",
    "at-and-hash": "redis://:a@{}#b",
    "space-first": "redis://:12 {}",
    "line-break": "redis://:12\n{}",
    "fragment": "redis://127.0.0.1:1#{}",
    "database": "redis://127.0.0.1:1/{}",
    "databases": "redis://127.0.0.1:1/0/{}",
    "port": "redis://127.0.0.1:{}",
    "setting-without-value": "redis://127.0.0.1:1?{}",
    "setting-with-empty-value": "redis://127.0.0.1:1?{}=",
    "unknown-setting": "redis://127.0.0.1:1?auth={}",
    "misspelt-setting": "redis://127.0.0.1:1?pasword={}",
    "setting-of-others": "redis://127.0.0.1:1?ssl={}",
    "ampersand": "redis://127.0.0.1:1?password=a&{}",
    "ampersand-and-equals": "redis://127.0.0.1:1?password=a&{}=b",
    "wrong-value-after-password": "redis://127.0.0.1:1?password={}&db=x",
    "two-passwords": "redis://:{}@127.0.0.1:1?password={}",
    "unix-login-after-slashes": "unix:///:{}@/run/none.sock",
    "unix-password-after-slashes": "unix:///{}@run/none.sock",
    "unix-encoded-login": "unix:///%3A{}%40/run/none.sock",
    "unix-portal": "unix:///run/none.sock;password={}",
    "unix-setting": "unix:///run/none.sock?socket_keepalive={}",
    "unix-host": "unix://:{}@run/none.sock",
    "embedded-login": "embedded://user:{}@/store",
    "embedded-login-after-slashes": "embedded:///:{}@/store",
    "embedded-setting": "embedded:///store?password={}",
}
PASSWORDS = {name for name in SETTINGS if name.endswith("password")}
NAMES = {"client_name", *(name for name in SETTINGS if name.endswith(("username", "certs", "path", "file")))}
SETTING = {f"setting-{name}": f"rediss://127.0.0.1:1?{name}={{}}" for name in SETTINGS if name not in NAMES | PASSWORDS}
"""In the place of a number or a word of a few, where any other text is not shown."""

WELL_FORMED = {
    "scheme-in-capitals": "REDIS://:{}@127.0.0.1:1",
    "password": "redis://:{}@127.0.0.1:1/0",
    "user": "redis://user:{}@localhost:1",
    "tls": "rediss://user:{}@127.0.0.1:1?ssl_password={}",
    "in-a-setting": "redis://127.0.0.1:1?username=user&password={}",
    "sentinel": "redis+sentinel://user:{}@127.0.0.1:1,127.0.0.1:2/service/0?sentinel_password={}",
    "cluster": "redis+cluster://user:{}@127.0.0.1:1",
    "unix": "unix://user:{}@/run/none.sock",
    "in-the-place-of-the-user": "redis://{}@127.0.0.1:1",
    "without-a-colon": "redis://{}:@127.0.0.1:1",
    "other-characters": "redis://:a;b,c d{}@127.0.0.1:1",
    "at": "redis://:a@b{}@127.0.0.1:1",
}
FORMS = MALFORMED | SETTING | WELL_FORMED
AMBIGUOUS = {
    FORMS["unix-password-after-slashes"]: "/",  # a path with an @ in a later part
    FORMS["in-the-place-of-the-user"]: ":",  # a user with a password
    FORMS["without-a-colon"]: ":",
    **{
        FORMS[name]: "@"
        for name in FORMS
        if name.startswith(("no-at", "scheme-in-capitals-no-at", "space-", "line-", "comma-after", "port"))
    },  # then a host
}
"""Characters with which a form is another one, whose user or path is shown."""

MISPLACED = ["azure", "server", "redis-cli-url", "redis-cli-words", "variable", "json", "no-scheme-login", "user"]
"""Forms for places where other words belong."""

SIGNS = "/?#@:%&=;, '\"\n\\{}[]<>+"


def parts(secret: str) -> set[str]:
    """What must not be in a text: each part of a password, as it is and percent-encoded."""
    return {
        text[at : at + SHOWN]
        for text in (secret, quote(secret, safe=""), "".join(f"%{ord(char):02X}" for char in secret))
        for at in range(len(text) - SHOWN + 1)
    }


PARTS = parts(MARK)


def leaks(text: str) -> list[str]:
    return sorted(part for part in PARTS if part in text)


def texts(error: BaseException | None) -> Iterator[str]:
    """All that a program may show of an error, with the causes that a traceback leaves out."""
    if error is not None:
        yield "".join(traceback.format_exception(error))
        yield f"{error} {error!r} {error.args}"
        yield from texts(error.__cause__)
        yield from texts(error.__context__)


def shown(*calls: Callable[[], Any]) -> str:
    """What calls return or raise, as text."""
    found: list[str] = []
    for call in calls:
        try:
            result = call()
            found.append(f"{result!r} {result}")
        except (DelayqError, click.ClickException) as error:
            found += texts(error)
    return "\n".join(found)
