"""The registry: the names of a server's queues and topics in two sets, so that lists need not wait for a scan.

It only saves time. Where a user may not use it, or it lacks a name, the scan of all keys finds the name. So errors are
ignored when names are added or removed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from delayq.errors import DelayqError, ServerNotReady, ServerUnreachable
from delayq.log import log
from delayq.model.validation import KINDS, Kind
from delayq.protocol.command import Command, identity
from delayq.protocol.discovery import record_key, registry_key
from delayq.protocol.operation import Operation, execute, gather

PAGE = 5000
"""The most names that one round trip reads, checks or changes."""


class Entries(NamedTuple):
    """What is known of the names of one kind.

    Attributes:
        registered: the names in the registry; None if it cannot be read.
        existing: the names, of these and of those that were asked about, whose queue or topic exists.
        unsure: the same for those whose record could not be read, for example for lack of a right.
    """

    registered: set[str] | None
    existing: set[str]
    unsure: set[str]


def add(prefix: str, kind: Kind, names: Collection[str]) -> Operation[bool]:
    """Add names; return False if the server refuses it."""
    return (yield from _change("SADD", registry_key(prefix, kind), names))


def remove_gone(prefix: str, kind: Kind, names: Collection[str]) -> Operation[bool]:
    """Remove those of these names whose record is gone; return False if the server refuses it.

    A queue that is created between the check and the removal stays out until the next scan: on a cluster, no
    transaction covers both keys.
    """
    asked = [(name, record_key(name, prefix, kind)) for name in names]
    for start in range(0, len(asked), PAGE):
        part = asked[start : start + PAGE]
        formats = iter((yield [_format(key) for _, key in part if key is not None]))
        gone = [name for name, key in part if key is None or next(formats) is None]
        if gone and not (yield from _change("SREM", registry_key(prefix, kind), gone)):
            return False
    return True


def look_up(prefix: str, known: Mapping[Kind, Collection[str]]) -> Operation[dict[Kind, Entries]]:
    """Read the registry, and check which of its names, and of the `known` ones, exist.

    Raises:
        ServerUnreachable, ServerNotReady: not even the registry's server answers.
    """
    read = yield from gather(*(_registered(prefix, kind) for kind in KINDS))
    if all(isinstance(each, ServerUnreachable | ServerNotReady) for each in read):
        raise read[0]
    entries = {
        kind: Entries(None if isinstance(names, DelayqError) else names, set(), set())
        for kind, names in zip(KINDS, read, strict=True)
    }
    asked = [
        (kind, name, key)
        for kind, each in entries.items()
        for name in {*(each.registered or ()), *known[kind]}
        if (key := record_key(name, prefix, kind)) is not None
    ]
    for start in range(0, len(asked), PAGE):
        part = asked[start : start + PAGE]
        formats = yield [_format(key) for _, _, key in part]
        for (kind, name, _), stored in zip(part, formats, strict=True):
            if isinstance(stored, DelayqError):
                entries[kind].unsure.add(name)
            elif stored is not None:
                entries[kind].existing.add(name)
    return entries


def exists(prefix: str, kind: Kind, name: str) -> Operation[bool]:
    """Return whether a queue or topic of this name is recorded."""
    key = record_key(name, prefix, kind)
    return key is not None and (yield from execute(_format(key))) is not None


def _format(key: str) -> Command[Any]:
    """Return a call whose reply is None if the record does not exist. Each reader of a queue has the right to HGET."""
    return Command(key, ("HGET", key, "format"), identity)


def _registered(prefix: str, kind: Kind) -> Operation[set[str]]:
    key, cursor, found = registry_key(prefix, kind), 0, set[str]()
    while True:
        reply: Any = yield from execute(Command(key, ("SSCAN", key, cursor, "COUNT", PAGE), identity))
        cursor = int(reply[0])
        found |= {name if isinstance(name, str) else name.decode(errors="replace") for name in reply[1]}
        if not cursor:
            return found


def _change(command: str, key: str, names: Collection[str]) -> Operation[bool]:
    todo = [*names]
    try:
        for start in range(0, len(todo), PAGE):
            yield from execute(Command(key, (command, key, *todo[start : start + PAGE]), identity, repeats=False))
    except DelayqError as error:
        log.debug("registry not changed", key=key, error=str(error))
        return False
    return True
