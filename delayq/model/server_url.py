"""Connection URLs: their parts, checked; without their secrets, for logs; and which one applies.

    redis://[[user]:password@]host[:port][/db]                             rediss://           over TLS
    redis+sentinel://[[user]:password@]host[:port][,host…]/service[/db]    rediss+sentinel://  TLS to sentinels, too
    redis+cluster://[[user]:password@]host[:port][,host…]                  rediss+cluster://
    unix://[[user]:password@]/path/of/socket
    embedded:///path/of/folder                                             see `delayq.transport.embedded`

valkey and valkeys may stand for redis and rediss, also before +sentinel and +cluster, and redis+socket for unix.

Settings follow a ``?``, as in ``?socket_timeout=5&client_name=billing``: those of `SETTINGS`, times in seconds.
Percent-encode ``/ ? # @ : & = %`` in a user name, a password or a setting. Put an IPv6 address in brackets.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from delayq.errors import InvalidURL
from delayq.model.credentials import may_hold_password
from delayq.model.show import nearest
from delayq.model.url_remedy import CONNECTION_STRING, ENCODED, LONGEST, PLAIN, remedy

HIDDEN = "***"
"""Replaces a secret, or what may be one."""


class Makers(msgspec.Struct, frozen=True):
    """The functions that make clients: those of `delayq.transport.clients`, or others like them."""

    single: Callable[..., Any]
    unix: Callable[..., Any]
    sentinel: Callable[..., Any]
    cluster: Callable[..., Any]
    embedded: Callable[[Path | None], Any]


def make(url: str, makers: Makers) -> Any:
    """Return the client that one of the makers makes for `url`.

    Raises:
        InvalidURL: an unknown scheme or setting, or a part that is missing or out of range.
    """
    parts = _URL(url)
    return parts.kind.client(parts, makers)


def chosen_url(url: str | None) -> str | None:
    """Return `url`, else DELAYQ_URL; None for the embedded store."""
    if url == "":
        raise InvalidURL("url='' is empty: give a URL, or None for DELAYQ_URL or the embedded store")
    if url is None and os.environ.get("DELAYQ_URL") == "":  # such as from "$REDIS_URL" when that is not set
        raise InvalidURL("DELAYQ_URL is empty: set it to a URL, or unset it for the embedded store")
    return url or os.environ.get("DELAYQ_URL")


def embedded_folder(url: str | None = None) -> Path | None:
    """Return the folder of the embedded store of a URL, or without a URL, the default one; None for a server's URL."""
    scheme, _, path = (url or "embedded://").partition("://")
    if scheme.lower() != "embedded":
        return None
    return Path(unquote(path)) if path else default_folder()


def check(url: str) -> None:
    """Raise InvalidURL if `url` is invalid; nothing is connected."""
    make(url, _CHECKING)


def is_same_server(one: str, other: str) -> bool:
    """Whether two URLs, perhaps without their secrets, name the same server and database, however they are written."""
    if one == other:
        return True
    try:
        return make(one, _PLACES) == make(other, _PLACES)  # type: ignore[no-any-return]  # of any maker
    except InvalidURL:
        return False


def default_folder() -> Path:
    """Return the default folder of the store: DELAYQ_HOME, or else ``./.delayq``.

    Raises:
        InvalidURL: DELAYQ_REQUIRE_URL forbids a default store, for example because the disk is not permanent; or
            DELAYQ_HOME is a URL.
    """
    named = os.environ.get("DELAYQ_HOME") or ".delayq"
    if may_hold_password(named):  # folders are shown
        raise InvalidURL("DELAYQ_HOME is a URL: set DELAYQ_URL to it, and DELAYQ_HOME to a folder")
    home = Path(named)
    if os.environ.get("DELAYQ_REQUIRE_URL", "0") not in ("", "0"):
        raise InvalidURL(
            f"DELAYQ_REQUIRE_URL forbids the embedded store in {home}: set DELAYQ_URL to a server, or to "
            "embedded:///FOLDER to keep a store in that folder; in a command of delayq consume --exec, give "
            "--exec-with-url to the consumer"
        )
    return home


def has_unread_url() -> bool:
    """Whether REDIS_URL, which other programs read, is set, and DELAYQ_URL, which delayq reads, is not."""
    return bool(os.environ.get("REDIS_URL")) and not os.environ.get("DELAYQ_URL")


def redact(url: str) -> str:
    """Return `url` for a log or an error: ``***`` for its secrets, and for all that does not have the form of a URL.

    A malformed URL may be a password in part or as a whole, so only its scheme is shown.
    """
    match = _FORM.fullmatch(url)
    if match is None or _scheme(match) not in _KINDS or _has_stray_at(match):
        return HIDDEN
    scheme = _scheme(match)
    login, at, hosts = match["netloc"].rpartition("@")
    query = [_redact_setting(item) for item in filter(None, match["query"].split("&"))] if len(url) <= LONGEST else [""]
    if not all(query) or not re.fullmatch(_KINDS[scheme].place, hosts + match["path"]):
        return f"{scheme}://{HIDDEN}"
    shown = f"{_redact_login(login)}{at}{hosts}{match['path']}"
    return f"{scheme}://{shown}{'?' if query else ''}{'&'.join(query)}"


def hide(text: str, url: str | None) -> str:
    """Return a text of another program, which may have `url`, with ``***`` for the secrets in it.

    Secrets of fewer than 6 characters are hidden within the whole URL only, since they may be words of the text.
    """
    if url:
        text = text.replace(url, redact(url))
        for secret in _secrets(url):
            text = text.replace(secret, HIDDEN)
    return text


def _secrets(url: str) -> list[str]:
    match = _FORM.fullmatch(url)
    if match is None:
        return [url]
    user, _, password = match["netloc"].rpartition("@")[0].partition(":")
    settings = (item.partition("=") for item in match["query"].split("&"))
    written = [password or user, *(value for name, _, value in settings if SETTINGS.get(name) is _SECRET)]
    forms = {form for each in written for form in (each, unquote(each)) if len(form) >= 6}
    return sorted(forms, key=len, reverse=True)


def _scheme(match: re.Match[str]) -> str:
    """Return the scheme as delayq writes it, empty if there is none. Case does not matter (RFC 3986, section 3.1)."""
    written = (match["scheme"] or "").lower()
    if written in {"redis+socket", "redis+unix", "valkey+socket", "valkey+unix"}:
        return "unix"
    return re.sub("^valkey(s?)(?![^+])", r"redis\1", written)


def _redact_login(login: str) -> str:
    user, _, password = login.partition(":")
    if not password:
        return login and HIDDEN  # a password in the place of the user
    return f"{user if re.fullmatch(_USER, user) else HIDDEN}:{HIDDEN}"


def _redact_setting(item: str) -> str:
    """Return a setting; empty if its name is not known, as it may be the end of a password."""
    name, equals, value = item.partition("=")
    if name not in SETTINGS:
        return f"{name}={HIDDEN}" if equals and _is_slip(name) else ""
    return f"{name}{equals}{value if re.fullmatch(SETTINGS[name].shown, value) else HIDDEN}"


def _is_slip(name: str) -> bool:
    """Whether this is the name of a setting with a typing error, or in another program."""
    return name in _ELSEWHERE or (
        re.fullmatch("[a-z_]{1,40}", name) is not None and nearest(name, SETTINGS, 0.8) is not None
    )


def _has_stray_at(match: re.Match[str]) -> bool:
    """Whether an @ may be in a password: one that was not percent-encoded, or one in another client's string."""
    login = match["netloc"].rpartition("@")[0]
    if login and re.search(CONNECTION_STRING, login):
        return True
    is_file = _scheme(match) in {"unix", "embedded"} and not match["netloc"]
    return "@" in match["query"] or ("@" in match["path"] and not is_file)


def _are_hosts(hosts: str) -> bool:
    """Whether no host may be a password without its @."""
    return all(not host or _HOST.fullmatch(host) for host in hosts.split(","))


def _is_host_name(host: str) -> bool:
    try:
        host.encode("idna")  # as the connection will, where a failure is not expected
    except UnicodeError:
        return False
    return True


# Patterns that few URLs need are text, which `re` compiles at its first use: programs start faster.
# Possessive (*+): otherwise a # after some thousand characters would backtrack over every way to divide them.
_FORM = re.compile(r"(?:(?P<scheme>[A-Za-z0-9+.-]++)://)?(?P<netloc>[^/?#]*+)(?P<path>[^?#]*+)\??(?P<query>[^#]*+)")
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(?:%25\w{1,15})?\]|[\w.-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
_ELSEWHERE = {"decode_responses", "encoding", "protocol", "retry_on_timeout", "ssl", "tls"}
_USER = r"[\w.~+-]{0,128}"
_SERVICE = r"[\w. -]+"
_SECRET_IN_PATH = r"(?is)^/+(?::|[^/]*@)|:.*@|passw(or)?d\s*=|pwd\s*="

# What is shown of a host and a path: letters and digits, with few other characters, none of them percent-encoded ASCII.
_HOSTS = f"(?:{_HOST.pattern})?".replace("?P<host>", "?:").replace("?P<port>", "?:")
_NAME = r"(?:[\w.~+-]|%20|%[89A-Fa-f][0-9A-Fa-f])"
_PATH = rf"/*+{_NAME}*(?:/(?:{_NAME}|@)*)*"


class _Setting(msgspec.Struct, frozen=True):
    read: Callable[[str], Any]  # raises ValueError, KeyError, OSError or RuntimeError
    wanted: str
    shown: str  # a pattern of the values that may be shown; others may be the end of a password


def _number(least: float, most: float, read: Callable[[str], float] = float) -> _Setting:
    def checked(text: str) -> float:
        value = read(text)
        if not least <= value <= most:
            raise ValueError
        return value

    return _Setting(checked, f"a {'whole ' if read is int else ''}number from {least} to {most}", _NUMBER)


def _one_of(choices: Mapping[str, Any]) -> _Setting:
    return _Setting(choices.__getitem__, " or ".join(choices), "|".join(choices))


def _printable(text: str) -> str:
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError
    return text


_NUMBER = r"[+-]?[0-9.]{0,7}[a-z]{0,2}|nan|inf"
_NOTHING = ""
_NAMED = _Setting(str, "text", _USER)
_SECRET = _Setting(str, "text", _NOTHING)
_FILE = _Setting(lambda text: str(Path(text).resolve(strict=True)), "a path that exists", _PATH)
_SECONDS = _number(0.001, 86_400)
_SWITCH = _one_of({"true": True, "false": False})

_CERT_REQS = {each: each for each in ("required", "optional", "none")}

_COMMON = {
    "username": _NAMED,
    "password": _SECRET,
    "client_name": _Setting(_printable, "a word of ASCII characters", r"[\w.:-]{0,64}"),
    "max_connections": _number(1, 1_000_000, int),
    "socket_connect_timeout": _SECONDS,
    "socket_timeout": _SECONDS,
    "retry_timeout": _number(0, 86_400),
}
_TCP = {"socket_keepalive": _SWITCH}
_SINGLE = {"db": _number(0, 1_000_000, int), "health_check_interval": _SECONDS}
_SENTINEL = {"sentinel_username": _NAMED, "sentinel_password": _SECRET}
_TLS = {
    "ssl_ca_certs": _FILE,
    "ssl_ca_path": _FILE,
    "ssl_certfile": _FILE,
    "ssl_keyfile": _FILE,
    "ssl_password": _SECRET,
    "ssl_cert_reqs": _Setting(
        lambda text: _CERT_REQS[text.lower().removeprefix("cert_")],  # CERT_NONE, as in Python's ssl and in Celery
        " or ".join(_CERT_REQS),
        rf"(?i)(?:cert_)?(?:{'|'.join(_CERT_REQS)})",
    ),
    "ssl_check_hostname": _SWITCH,
}
SETTINGS = _COMMON | _TCP | _SINGLE | _SENTINEL | _TLS


class _URL:
    """The parts of a URL. Reading an invalid part raises InvalidURL."""

    def __init__(self, url: str) -> None:
        if not isinstance(url, str):
            raise InvalidURL(f"a URL is a string, not {type(url).__name__}: give one such as redis://localhost:6379/0")
        self.shown = redact(url)
        if any(unicodedata.category(char) == "Cs" for char in url):  # bytes of a command line that are not UTF-8
            raise self.wrong("is not UTF-8 text: percent-encode the other bytes")
        match = _FORM.fullmatch(url)
        if match is None or _has_stray_at(match):
            stray = "has a / ? # or @ out of place: percent-encode it in a user name or a password, as in "
            raise self.wrong(remedy(url) or f"{stray}{PLAIN}, {ENCODED}")
        self.scheme = _scheme(match)
        if self.scheme not in _KINDS:
            known = ", ".join(f"{scheme}://" for scheme in _KINDS)
            raise self.wrong(remedy(url) or f"has an unknown scheme; expected one of {known}")
        self.kind = _KINDS[self.scheme]
        self.tls = self.scheme.startswith("rediss")
        login, _, hosts = match["netloc"].rpartition("@")
        if not _are_hosts(hosts):
            wrong = "has a host that is not host, host:port or [IPv6]:port; put an @ after a password"
            raise self.wrong(remedy(url) or wrong)
        self._hosts: list[str] = hosts.split(",")
        self.path = unquote(match["path"])
        self.settings = self._read(login, match["query"])

    def wrong(self, what: str) -> InvalidURL:
        return InvalidURL(f"the URL {self.shown} {what}")

    def hosts(self, default_port: int = 6379) -> list[tuple[str, int]]:
        return [self._host(item, default_port) for item in self._hosts]

    def host(self) -> tuple[str, int]:
        host, *others = self.hosts()
        if others:
            raise self.wrong("has more than one host: use redis+sentinel:// or redis+cluster:// for that")
        return host

    @property
    def has_host(self) -> bool:
        return self._hosts != [""]

    def file(self) -> str:
        if self.has_host or not self.path.strip("/"):
            raise self.wrong(f"has no path, or a host before it: write {self.scheme}:///path/of/it, with three slashes")
        if "\0" in self.path:
            raise self.wrong("has a NUL character in its path, which is not allowed")
        if re.search(_SECRET_IN_PATH, unquote(self.path)):  # the path itself is shown when it cannot be opened
            raise self.wrong("seems to have a password in its path: put it before that, as in unix://:KEY@/path/of/it")
        return self.path

    def with_database(self, text: str) -> dict[str, Any]:
        """The settings, with the database from the end of the path."""
        if not text:
            return self.settings
        if not re.fullmatch(r"[0-9]{1,7}", text):  # Python itself refuses to read thousands of digits
            raise self.wrong(f"has the database {_quoted(text)}: give a number, as in redis://localhost:6379/0")
        if "db" in self.settings:
            raise self.wrong("has two databases: one in the path, and one as db")
        return self.settings | {"db": int(text)}

    def _host(self, item: str, default_port: int) -> tuple[str, int]:
        match = _HOST.fullmatch(item)
        if match is None:
            raise self.wrong("has no host: write host or host:port, as in redis://localhost:6379/0")
        port = int(match["port"] or default_port)
        if not 1 <= port <= 65535:
            raise self.wrong(f"has the port {port}: give one from 1 to 65535")
        host = unquote(match["host"]).strip("[]")
        if not _is_host_name(host):
            raise self.wrong("has an invalid host: a part between dots is empty or too long")
        return host, port

    def _read(self, login: str, query: str) -> dict[str, Any]:
        user, _, password = login.partition(":")
        found: dict[str, Any] = {
            name: unquote(text) for name, text in (("username", user), ("password", password)) if text
        }
        for item in filter(None, query.split("&")):
            name, _, text = item.partition("=")
            if name == "decode_responses":
                raise self.wrong("sets decode_responses: leave it out, as delayq needs replies as bytes")
            if name not in self.kind.settings:
                shown = _redact_setting(item).partition("=")[0] or HIDDEN
                known = f"{self.scheme} has {', '.join(self.kind.settings) or 'none, so leave it out'}"
                raise self.wrong(f"has the unknown setting {shown}: {known}")
            if name in found:
                raise self.wrong(f"sets {name} twice")
            found[name] = self._setting(name, text)
        return found

    def _setting(self, name: str, text: str) -> Any:
        setting = self.kind.settings[name]
        try:
            if text:
                return setting.read(unquote(text))
        except (ValueError, KeyError, OSError, RuntimeError):  # RuntimeError: links that lead to each other
            pass
        raise self.wrong(f"sets {name} to {_quoted(text, setting.shown)}: give {setting.wanted}")


def _quoted(text: str, shown: str = _NUMBER) -> str:
    return repr(text) if re.fullmatch(shown, text) else HIDDEN


def _single(url: _URL, makers: Makers) -> Any:
    address = url.host()
    return makers.single(address, url.with_database(url.path.strip("/")), url.tls)


def _unix(url: _URL, makers: Makers) -> Any:
    return makers.unix(url.file(), url.settings)


def _sentinel(url: _URL, makers: Makers) -> Any:
    service, _, database = url.path.strip("/").partition("/")
    if not service:
        raise url.wrong("has no service name: write it as in redis+sentinel://host:26379/service")
    if not re.fullmatch(_SERVICE, service):
        raise url.wrong("has an invalid service name: use letters, digits, dots, hyphens, underscores and spaces")
    settings = url.with_database(database)
    login = {name: settings.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    return makers.sentinel(url.hosts(26379), service, settings, login, url.tls)


def _cluster(url: _URL, makers: Makers) -> Any:
    if url.path.strip("/") not in {"", "0"}:
        raise url.wrong(
            f"has the database {_quoted(url.path.strip('/'))}: a cluster has only database 0, so leave it out"
        )
    return makers.cluster(url.hosts(), url.settings, url.tls)


def _embedded(url: _URL, makers: Makers) -> Any:
    if url.settings:
        raise url.wrong("has a user name or a password: the embedded store has none, so leave them out")
    return makers.embedded(Path(url.file()) if url.path or url.has_host else None)


class _Kind(msgspec.Struct, frozen=True):
    client: Callable[[_URL, Makers], Any]
    settings: Mapping[str, _Setting]
    place: str  # a pattern of the hosts and the path that may be shown


_SERVER = rf"{_HOSTS}(?:/[0-9]{{0,7}})?/?"
_SENTINELS = rf"{_HOSTS}(?:,{_HOSTS})*(?:/{_NAME}*(?:/[0-9]{{1,7}})?)?/?"
_NODES = rf"{_HOSTS}(?:,{_HOSTS})*(?:/0?)?"

_KINDS = {
    "redis": _Kind(_single, _COMMON | _TCP | _SINGLE, _SERVER),
    "rediss": _Kind(_single, _COMMON | _TCP | _SINGLE | _TLS, _SERVER),
    "unix": _Kind(_unix, _COMMON | _SINGLE, _PATH),
    "redis+sentinel": _Kind(_sentinel, _COMMON | _TCP | _SINGLE | _SENTINEL, _SENTINELS),
    "rediss+sentinel": _Kind(_sentinel, _COMMON | _TCP | _SINGLE | _SENTINEL | _TLS, _SENTINELS),
    "redis+cluster": _Kind(_cluster, _COMMON | _TCP, _NODES),
    "rediss+cluster": _Kind(_cluster, _COMMON | _TCP | _TLS, _NODES),
    "embedded": _Kind(_embedded, {}, _PATH),
}


def _checked(*_: Any, **__: Any) -> None:
    """Stand in for each maker of a client."""


_CHECKING = Makers(*[_checked] * 5)


def _hosts_of(addresses: Iterable[tuple[str, int]]) -> frozenset[tuple[str, int]]:
    return frozenset((host.lower(), port) for host, port in addresses)


_PLACES = Makers(
    lambda address, settings, tls: (_hosts_of([address]), settings.get("db", 0), tls),
    lambda path, settings: (path, settings.get("db", 0)),
    lambda hosts, service, settings, _, tls: (_hosts_of(hosts), service, settings.get("db", 0), tls),
    lambda hosts, _, tls: (_hosts_of(hosts), tls),
    lambda folder: (folder or default_folder()).absolute(),
)
"""Makers of values that are equal for the same server and database."""
