"""Scan structures and payload keys page by page. What is there throughout is seen, perhaps twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os.path import commonprefix
from typing import Any, NamedTuple, TypeAlias

from delayq.errors import KeyOverwritten
from delayq.model.placement import State
from delayq.model.text import encode_id
from delayq.operations.fetch import fetch
from delayq.protocol.command import Command, Raw
from delayq.protocol.operation import Operation, execute, gather, unwrap
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands


class ScanPage(NamedTuple):
    """Members with their scores or values (None if they have none), and the cursor of the next page: 0 at the end."""

    cursor: int
    items: dict[bytes, Any]


Look: TypeAlias = Callable[[dict[bytes, Any]], Operation[None]]


def structure(command: str, key: str, look: Look) -> Operation[None]:
    """Pass each page of a structure to `look`; the command is ZSCAN, HSCAN or SSCAN."""
    yield from _pages(key, lambda cursor: (command, key, cursor, "COUNT", MAX_IDS), look)


def keys_of_ids(looks: Mapping[str, Look]) -> Operation[None]:
    """Scan the keys of one server once, and pass each page of ids to the function for what their keys begin with.

    Args:
        looks: by what keys on this server begin with: ``delayq:{emails}:msg:``.
    """
    route, common = next(iter(looks)), commonprefix(list(looks))  # noqa: RUF071  # these are not paths
    literal = "".join(f"\\{char}" if char in "\\*?[]" else char for char in common)
    beginnings = {beginning.encode(): beginning for beginning in looks}

    def look_at_keys(keys: dict[bytes, Any]) -> Operation[None]:
        pages: dict[str, dict[bytes, Any]] = {}
        for key in keys:
            start = key.find(b":", key.find(b"}:") + 2) + 1
            if beginning := beginnings.get(key[:start]):
                pages.setdefault(beginning, {})[key[start:]] = None
        for looked in (yield from gather(*(looks[beginning](page) for beginning, page in pages.items()))):
            unwrap(looked)

    yield from _pages(route, lambda cursor: ("SCAN", cursor, "MATCH", f"{literal}*", "COUNT", MAX_IDS), look_at_keys)


def _pages(key: str, words: Callable[[int], tuple[Raw, ...]], look: Look) -> Operation[None]:
    cursor = 0
    while True:
        page = yield from execute(Command(key, words(cursor), _read_page))
        if page.items:
            yield from look(page.items)
        cursor = page.cursor
        if not cursor:
            return


def _read_page(reply: Any) -> ScanPage:
    cursor, items = reply
    if isinstance(items, dict):
        return ScanPage(int(cursor), items)
    in_pairs = bool(items) and isinstance(items[0], tuple | list)
    return ScanPage(int(cursor), dict(items) if in_pairs else dict.fromkeys(items))


def in_any(scripts: QueueCommands, ids: Sequence[str], states: Iterable[State]) -> Operation[set[str]]:
    """Return those of `ids` that are in at least one of the states."""
    keys = [scripts.keys.state(state) for state in states] if ids else []
    found: set[str] = set()
    if not keys:
        return found
    words = list(map(encode_id, ids))
    for reply in (yield [Command(key, ("ZMSCORE", key, *words), list) for key in keys]):
        found.update(each for each, score in zip(ids, unwrap(reply), strict=True) if score is not None)
    return found


def sizes(scripts: QueueCommands, ids: Iterable[str]) -> Operation[dict[str, int]]:
    """Return the sizes of the stored envelopes in bytes; 0 if there is none, or the key has another type."""
    keys = {message_id: scripts.keys.message(message_id) for message_id in ids}
    prefix = scripts.keys.message_prefix
    results = (yield [Command(prefix, ("STRLEN", encode_id(key)), int) for key in keys.values()]) if keys else []
    return {
        message_id: 0 if isinstance(size, KeyOverwritten) else unwrap(size)
        for message_id, size in zip(keys, results, strict=True)
    }


def envelopes(scripts: QueueCommands, left: dict[str, Any]) -> Operation[dict[str, bytes]]:
    """Return as many of the stored envelopes as may be read at once, and remove them from `left`."""
    ids = list(left)
    stored = yield from fetch(scripts, ids)
    for message_id in ids[: len(stored)]:
        del left[message_id]
    return {message_id: envelope for message_id, envelope in zip(ids, stored, strict=False) if envelope is not None}
