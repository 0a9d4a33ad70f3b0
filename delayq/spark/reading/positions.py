"""Where reads of ledgers and topics begin and end: options of a read, for all shards or for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from delayq.errors import InvalidInput
from delayq.model.positions import bound
from delayq.model.record import Extent
from delayq.spark.reading.offsets import BEGINNING
from delayq.spark.reading.options import called, moment_ms

EARLIEST, LATEST = "earliest", "latest"
_ID = re.compile(r"\d+(-\d+)?", re.ASCII)
_FORMS = "earliest, latest, the id of an entry, or a time"
_OBJECT = 'a JSON object of positions, such as {"0": "latest"} by shard, or {"emails": "latest"} of several by name'
_BY_NAME = 'a JSON object by name, such as {"emails": "latest"}, or {"emails": {"0": "latest"}} for a shard of one'

ByName: TypeAlias = dict[str, str | dict[str, str]]


class Positions(NamedTuple):
    """Positions by shard: "earliest", "latest" or an id.

    Attributes:
        what: how an error names the option.
        others: of the shards that are not in `shards`.
    """

    what: str
    others: str
    shards: Mapping[int, str]

    def of(self, shard: int) -> str:
        """Return the position in a shard."""
        return self.shards.get(shard, self.others)

    def all(self) -> set[str]:
        """Return all of them."""
        return {self.others, *self.shards.values()}

    def check_shards(self, extents: Sequence[Extent]) -> None:
        """Raise InvalidInput if a shard does not exist; a stream that does not exist yet may get more than one."""
        if len(extents) == 1 and extents[0].last == BEGINNING.id:
            return
        for shard in self.shards:
            if shard >= len(extents):
                raise InvalidInput(
                    f"{self.what} names shard {shard}, which does not exist: give numbers from 0 to {len(extents) - 1}"
                )


def positions(options: Mapping[str, str], name: str, default: str) -> Positions:
    """Return the positions in the shards of a stream; a time becomes the id that begins with it.

    Raises:
        InvalidInput: the option is neither a position nor a JSON object of positions by shard.
    """
    what, text = called(options, name), options.get(name, default)
    if not text.startswith("{"):
        return Positions(what, _position(text, what), {})
    given = _object(text, what, dict[str, str])
    for shard in given:
        if not shard.isascii() or not shard.isdigit():
            raise InvalidInput(f"{what} names {shard!r}, which is not the number of a shard: give {_OBJECT}")
    return Positions(what, default, {int(shard): _position(at, what) for shard, at in given.items()})


def by_name(options: Mapping[str, str], name: str, has: Callable[[str], bool], names: str) -> dict[str, str] | None:
    """Return the option by the name of a stream, each as `positions` takes it; None if it is one value for all.

    Args:
        has: whether a read of several streams has one of this name.
        names: how an error names these.

    Raises:
        InvalidInput: the option is a JSON object, but not of positions by name, or of a name that the read lacks.
    """
    text = options.get(name)
    if text is None or not text.startswith("{"):
        return None
    what = called(options, name)
    given: ByName = _object(text, what, ByName)
    for each in given:
        if not has(each):
            raise InvalidInput(f"{what} names {each!r}, which is not among {names}: give {_BY_NAME}")
    return {
        each: value if isinstance(value, str) else msgspec.json.encode(value).decode() for each, value in given.items()
    }


def _object(text: str, what: str, form: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=form)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{what} is {text!r}: give {_OBJECT}") from error


def _position(text: str, what: str) -> str:
    if text in (EARLIEST, LATEST):
        return text
    if _ID.fullmatch(text):
        return bound(text, what)
    return str(moment_ms(text, what, _FORMS))
