"""Several queues, ledgers or topics as one table or one stream: a list of names, or a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delayq.errors import InvalidInput
from delayq.model.validation import Kind, check_queue_name
from delayq.spark.reading.options import SourceOptions, called, report_missing, switch
from delayq.spark.reading.positions import by_name
from delayq.spark.redis_options import RedisOptions

PATTERN = "Pattern"
"""The end of an option that names queues or topics by a pattern, such as `eventsPattern`."""

_ARRAY = re.compile(r'\s*\[\s*("|\]\s*\Z)')  # a queue may be named "[a]"

Make = Callable[[SourceOptions], Any]


class Names(NamedTuple):
    """The names that a read has.

    Attributes:
        option: "queue", "events" or "topic".
        listed: the names, if they are listed.
        pattern: otherwise what they match wholly.
    """

    option: str
    listed: Sequence[str] = ()
    pattern: str | None = None

    def __str__(self) -> str:
        kind = {"queue": "queues", "events": "the ledgers of queues", "topic": "topics"}[self.option]
        return f"{kind} {', '.join(self.listed)}" if self.pattern is None else f"{kind} that match {self.pattern}"

    def found(self, server: RedisOptions) -> list[str]:
        """Return the names, sorted if they match a pattern."""
        if self.pattern is None:
            return list(self.listed)
        kind: Kind = "topic" if self.option == "topic" else "queue"
        with closing(server.server()) as opened:
            opened.search.find_all()
            return sorted(name for name in opened.search.names[kind] if re.fullmatch(self.pattern, name))

    def has(self, name: str) -> bool:
        """Whether a name is listed or matches the pattern."""
        return name in self.listed if self.pattern is None else bool(re.fullmatch(self.pattern, name))

    def known(self, options: SourceOptions) -> list[str]:
        """Return the names that are known without the server: those listed, or those that `start` and `end` give."""
        given = [name for bound in self._bounds(options).values() for name in bound]
        return list(self.listed) if self.pattern is None else given

    def of_one(self, options: SourceOptions, name: str) -> SourceOptions:
        """Return the options for the read of one of them."""
        bounds = {bound: given.get(name) for bound, given in self._bounds(options).items()}
        # The whole batch is limited, not that of each.
        own = {"maxEntriesPerTrigger": None, "minEntriesPerTrigger": None, "maxTriggerDelay": None}
        return options.replaced(**{self.option: name, f"{self.option}{PATTERN}": None}, **bounds, **own)

    def _bounds(self, options: SourceOptions) -> dict[str, dict[str, str]]:
        """Return `start` and `end` by name, if they are given so."""
        found = {bound: by_name(options, bound, self.has, str(self)) for bound in ("start", "end")}
        return {bound: given for bound, given in found.items() if given is not None}


def several(options: SourceOptions, option: str) -> Names | None:
    """Return the names if an option is a JSON array of strings, or if there is a pattern; None if it is one name.

    Raises:
        InvalidInput: the pattern is wrong, a name is, or the array has none.
    """
    text, pattern = options.get(option), options.get(f"{option}{PATTERN}")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            what = called(options, f"{option}{PATTERN}")
            raise InvalidInput(f"{what} is {pattern!r}, which is not a regular expression: {error}") from error
        return Names(option, pattern=pattern)
    if text is None or not _ARRAY.match(text):
        return None
    try:
        names = msgspec.json.decode(text, type=list[str])
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{called(options, option)} is not a JSON array of names: {error}") from error
    if not names:
        raise InvalidInput(f"{called(options, option)} is {text!r}, an array without names: give at least one name")
    return Names(option, [check_queue_name(name) for name in dict.fromkeys(names)])


class OfOne(InputPartition):
    """A part of the table or the stream with a name."""

    def __init__(self, name: str, part: InputPartition) -> None:
        super().__init__(part)
        self.name = name


class SeveralTables(DataSourceReader):
    """The rows of several tables.

    Args:
        make: makes the reader for the options of one.
    """

    def __init__(self, names: Names, options: SourceOptions, make: Make) -> None:
        self._names = names
        self._options = options
        self._make = make
        self._server = RedisOptions.of(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Divide each of them among tasks."""
        names = self._names.found(self._server)
        if not names:
            report_missing(str(self._names), switch(self._options, "failOnMissing", False))
        return [OfOne(name, part) for name in names for part in self._of(name).partitions()] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one of these parts."""
        if isinstance(partition, OfOne):
            yield from self._of(partition.name).read(partition.value)

    def _of(self, name: str) -> DataSourceReader:
        reader: DataSourceReader = self._make(self._names.of_one(self._options, name))
        return reader
