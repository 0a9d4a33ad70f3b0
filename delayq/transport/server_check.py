"""The check of a server's version and settings, and the translation of connection errors."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Generator, Iterator
from typing import Any, TypeAlias

import msgspec
import redis
from redis import exceptions
from redis.cluster import RedisCluster
from redis.sentinel import MasterNotFoundError, SentinelConnectionPool

from delayq.errors import (
    DelayqError,
    KeyOverwritten,
    LoginRefused,
    ServerError,
    ServerNotReady,
    ServerOutOfMemory,
    ServerTooOld,
    ServerUnreachable,
)
from delayq.log import server_log
from delayq.model.text import printable
from delayq.transport.clients import lacks_handshake

Client: TypeAlias = "redis.Redis | RedisCluster"

OLDEST = (6, 2)  # has ZRANGE … BYSCORE, ZMSCORE, LMOVE, and ACLs that can name them


class ServerInfo(msgspec.Struct, frozen=True):
    """The version and settings of a server; None for each value that it does not return.

    ``save_points`` is the setting ``save``, empty if none is set; it is read only if ``append_only`` is false.
    """

    address: str
    version: tuple[int, ...] | None = None
    maxmemory_policy: str | None = None
    append_only: bool | None = None
    save_points: str | None = None
    cluster: bool = False


def check_server(client: Client) -> ServerInfo:
    """Refuse a server that is too old, warn about settings that may lose messages, and return the server's info.

    In a cluster, all available primaries are checked, and the oldest is returned; if none is available, that is an
    error. A process logs each warning once per server.

    Raises:
        ServerTooOld, LoginRefused, ServerUnreachable, ServerNotReady
    """
    found: list[ServerInfo] = []
    away: DelayqError | None = None
    for address, server in _servers(client):
        try:
            found.append(_inspect(server, address))
        except (ServerUnreachable, ServerNotReady) as error:
            away = error
    return judge(found, away)


def judge(found: list[ServerInfo], away: DelayqError | None) -> ServerInfo:
    """Return the oldest of the servers found; see `check_server`. `away` is the error of an unavailable one."""
    if away is not None and not found:
        raise away
    for info in found:
        if info.version is not None and info.version < OLDEST:
            version = ".".join(map(str, info.version))
            raise ServerTooOld(f"{info.address} is Redis {version}, but delayq needs 6.2 or newer: upgrade the server")
        _warn(info)
    return min(found, key=lambda info: info.version or ())


def address(client: Client) -> str:
    """Return where `client` connects to, for logs and errors: host:port, a path, or the service of sentinels."""
    if isinstance(client, RedisCluster):
        return ", ".join(node.name for node in client.get_nodes())
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return f"the master of {pool.service_name}"
    given = pool.connection_kwargs
    return str(given["path"]) if "path" in given else f"{given.get('host', 'localhost')}:{given.get('port', 6379)}"


def _servers(client: Client) -> Iterator[tuple[str, redis.Redis]]:
    if isinstance(client, RedisCluster):
        for node in client.get_primaries():
            yield node.name, client.get_redis_connection(node)
    else:
        yield address(client), client


def _inspect(server: redis.Redis, address: str) -> ServerInfo:
    inspection, reply = inspecting(address), None
    try:
        while True:
            words = inspection.send(reply)
            try:
                reply = server.execute_command(*words)
            except exceptions.RedisError as error:
                reply = error
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # what the generator returns


def inspecting(address: str) -> Generator[tuple[str, ...], Any, ServerInfo]:
    """Ask a server for its info: yields commands, and is sent their replies or errors."""
    info = _info_reply((yield ("INFO",)), address)
    version = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", str(info.get("redis_version", "")))
    append_only = bool(info["aof_enabled"]) if "aof_enabled" in info else None
    save_points = _info_reply((yield "CONFIG GET", "save"), address).get("save") if append_only is False else None
    return ServerInfo(
        address=address,
        version=tuple(int(part) for part in version.groups(default="0")) if version else None,
        maxmemory_policy=info.get("maxmemory_policy"),
        append_only=append_only,
        save_points=save_points,
        cluster=bool(info.get("cluster_enabled")),
    )


def _info_reply(reply: Any, address: str) -> dict[str, Any]:
    """Read the reply to INFO or CONFIG GET; empty if it is forbidden, renamed or, as in a fake server, missing."""
    if isinstance(reply, exceptions.ResponseError) and _NO_DATABASE not in str(reply):
        return {}
    if isinstance(reply, exceptions.RedisError):
        raise translate(reply, address) from reply
    return {redis.utils.str_if_bytes(name): redis.utils.str_if_bytes(value) for name, value in reply.items()}


_warned: set[tuple[str, str]] = set()
_warned_lock = threading.Lock()


def _warn(info: ServerInfo) -> None:
    if info.maxmemory_policy not in {None, "noeviction"}:
        _warn_once(
            "redis may evict messages",
            info.address,
            maxmemory_policy=info.maxmemory_policy,
            remedy="set maxmemory-policy to noeviction",
        )
    if info.append_only is False and info.save_points == "":
        _warn_once("redis keeps nothing on disk", info.address, remedy="set appendonly to yes")


def _warn_once(warning: str, server: str, **details: object) -> None:
    with _warned_lock:
        if (warning, server) in _warned:
            return
        _warned.add((warning, server))
    server_log.warning(warning, server=server, **details)


def translate(error: Exception, address: str = "", key: str = "") -> DelayqError:
    """Translate an error of redis-py into an error of delayq; its text names `address`, if given.

    If the server reports a wrong type without naming the key, the text names `key`, a key of the same call.

    An error whose text begins with the code of a class in `delayq.errors` comes from a script and becomes that class.
    """
    if isinstance(error, exceptions.RedisClusterException):
        why = error.__cause__ or error.__context__  # redis-py reports a missing right as a server without a cluster
        if isinstance(why, _HIDDEN) or (why is error.__cause__ and isinstance(why, exceptions.RedisError)):
            return translate(why, address)
    _forget_arguments(error)
    kind, text, remedy = _meaning(error)
    text = printable(text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}…")  # it may name what others have named
    if kind.code is not None:
        return kind(text)
    if kind is KeyOverwritten and key:
        remedy = f"{key}, or another {remedy.removeprefix('a ')}"
    where = f"{address}: " if address not in text else ""
    return kind(f"{where}{text.rstrip('.')}{'; ' if remedy else ''}{remedy}")


MOST_CHARS = 1000  # of a server's own text

_WAIT = "try again later"
_LOGIN = "check the user, the password, and the user's rights in the server's ACL"
_CONNECT = "check that the server is running, and check the URL"
_MEMORY = "the refused command stored nothing: raise maxmemory, let consumers drain the queues, or trim topics"
_CLUSTER = "the server belongs to a cluster: use a redis+cluster:// URL"
_NO_CLUSTER = "check that the URL's nodes form a complete cluster; use redis:// for a single server"
_OVERWRITTEN = "a key of the queue or topic belongs to another program: use another name or prefix for one of them"
_POOL = "raise max_connections in the URL, or use fewer threads"
_NO_DATABASE = "DB index is out of range"
_BY_TEXT: dict[str, tuple[type[DelayqError], str]] = {
    _NO_DATABASE: (ServerError, "the server does not have the database in the URL: use 0, which always exists"),
    "max number of clients reached": (
        ServerUnreachable,
        "the server is up, but accepts no more connections: raise its maxclients, or run fewer clients",
    ),
    "Too many connections": (ServerError, _POOL),  # a plain ConnectionError in redis-py 5
}
_CLOSED = f"{_CONNECT}: a port that expects TLS needs rediss://"
_NO_TLS = "it accepts connections, but does not answer TLS: use redis:// for a port without TLS, or the port for TLS"

_HIDDEN = (exceptions.RedisClusterException, exceptions.NoPermissionError)

_BY_CLASS: tuple[tuple[type[Exception], type[DelayqError], str], ...] = (  # the first that fits
    (exceptions.AuthenticationError, LoginRefused, _LOGIN),
    (exceptions.AuthorizationError, LoginRefused, _LOGIN),
    (exceptions.AuthenticationWrongNumberOfArgsError, LoginRefused, _LOGIN),
    (exceptions.BusyLoadingError, ServerNotReady, _WAIT),
    (exceptions.ReadOnlyError, ServerNotReady, _WAIT),
    (exceptions.TryAgainError, ServerNotReady, _WAIT),
    (exceptions.ClusterError, ServerNotReady, _WAIT),
    (exceptions.SlotNotCoveredError, ServerNotReady, _WAIT),
    (exceptions.RedisClusterException, ServerError, _NO_CLUSTER),
    (exceptions.AskError, ServerError, _CLUSTER),  # and MovedError
    (exceptions.OutOfMemoryError, ServerOutOfMemory, _MEMORY),
    (exceptions.MaxConnectionsError, ServerError, _POOL),
    (exceptions.ConnectionError, ServerUnreachable, _CONNECT),
    (exceptions.TimeoutError, ServerUnreachable, _CONNECT),
)
_NOT_READY = (
    "BUSY",
    "LOADING",
    "READONLY",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "MISCONF",
    "UNBLOCKED",
)
_BY_CODE: dict[str, tuple[type[DelayqError], str]] = {
    "OOM": (ServerOutOfMemory, _MEMORY),
    **dict.fromkeys(("NOAUTH", "WRONGPASS"), (LoginRefused, _LOGIN)),
    **dict.fromkeys(_NOT_READY, (ServerNotReady, _WAIT)),
}

# Patterns of errors are text, which `re` compiles at its first use: programs start faster.
# The command in a pipeline's error contains the payload, which must not be shown.
_ARGUMENTS = r"(?s),? with args beginning with: .*"  # of an unknown AUTH, they are the password
_PIPELINE = r"(?s)Command # \d+ \(.*\) of pipeline caused error: "
# Redis 6.2 wraps the error of a command in a script: "Error running script (call to f_…): @user_script: 1: -OOM …", and
# the error that a script returns after handling a refusal: "@user_script: 1: -OOM …".
_CODED = r"(?s)(?:(?:Error running script .*?)?@user_script: ?\d+: -?)?(?P<code>[A-Z]{2,}) (?P<text>.*)"
# The server's text for a missing right, and what different versions put around it if a script was running.
_RIGHT = r"has no permissions to run the '(?P<command>[^']+)' command|(?P<key>\b(?:a key|the keys|keys)\b)"
_RIGHTS_OF_WHOLE = {  # Redis 6.2 does not name the subcommand
    "client": "+client|setname, and to a consumer +client|id and +client|unblock",
    "cluster": "+cluster|slots",
    "sentinel": "+sentinel|masters",
}
_FORBIDDEN_IN_SCRIPT = r"ACL failure in script|The user executing the script can't "
_AROUND = r"^(?:Error running script .*?)?@user_script: \d+: | script:( [0-9a-f]{40},)? on @user_script:\d+\.?$"


def _forget_arguments(error: BaseException | None) -> None:
    """Remove what a server repeats of a command that it does not know, also from the causes, which tracebacks show."""
    while error is not None:
        error.args = tuple(re.sub(_ARGUMENTS, "", each) if isinstance(each, str) else each for each in error.args)
        error = error.__cause__ or error.__context__


def _meaning(error: Exception) -> tuple[type[DelayqError], str, str]:
    text = re.sub(_PIPELINE, "", str(error), count=1)
    if isinstance(error, MasterNotFoundError):
        text = text.partition(" : ")[0]  # the rest is the repr of every sentinel's client
    in_script = re.search(_FORBIDDEN_IN_SCRIPT, text) is not None
    if in_script or isinstance(error, exceptions.NoPermissionError) or text.startswith("NOPERM "):
        text = re.sub(_AROUND, "", text.removeprefix("NOPERM "))
        return LoginRefused, text, f"grant this user {_right(text)}; docs/acl.md lists what each role needs"
    if known := _known(error, text):
        kind, remedy = known
        return kind, text, remedy
    coded = re.fullmatch(_CODED, text)
    if coded and coded["code"] in _scripted():
        return _scripted()[coded["code"]], re.sub(_AROUND, "", coded["text"]), ""
    if coded and coded["code"] == "WRONGTYPE":
        return KeyOverwritten, f"WRONGTYPE {re.sub(_AROUND, '', coded['text'])}", _OVERWRITTEN
    if coded and coded["code"] in _BY_CODE:
        kind, remedy = _BY_CODE[coded["code"]]
        return kind, coded["text"], remedy
    return ServerError, text, ""


def _known(error: Exception, text: str) -> tuple[type[DelayqError], str] | None:
    """Return the class and remedy of an error that is known by its text or class."""
    for words, known in _BY_TEXT.items():
        if words in text:
            return known
    if lacks_handshake(error) or "WRONG_VERSION_NUMBER" in text:
        return ServerUnreachable, _NO_TLS
    if "Connection closed by server" in text or "Connection reset by peer" in text:
        return ServerUnreachable, _CLOSED
    return next(((kind, remedy) for cls, kind, remedy in _BY_CLASS if isinstance(error, cls)), None)


def _right(text: str) -> str:
    """Return the right that is missing, from a server's refusal."""
    match = re.search(_RIGHT, text)
    if match is None:
        return "the command that ACL LOG shows"
    if match["command"] is None:
        return "the keys of the queue, such as ~delayq:{emails}:*, or of the topic, such as ~delayq:{orders}:topic*"
    return _RIGHTS_OF_WHOLE.get(match["command"], f"+{match['command']}")


@functools.cache
def _scripted() -> dict[str, type[DelayqError]]:
    """Return the classes of scripts' errors by code."""
    classes, found = [DelayqError], {}
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        if cls.code is not None:
            found[cls.code] = cls
    return found
