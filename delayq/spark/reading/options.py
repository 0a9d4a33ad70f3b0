"""The options of a read or a write. Spark passes them as text, with names in lower case."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from delayq.errors import InvalidInput
from delayq.log import log
from delayq.model.units import MAX_TIME_MS, delay_ms, timestamp_ms

T = TypeVar("T", bound=str)

_MS = re.compile(r"\d{1,15}", re.ASCII)
_SWITCH = {"true": True, "false": False}


class SourceOptions(Mapping[str, str]):
    """Options whose names ignore case and underscores: `uniqueFor` is `unique_for`.

    The argument of `load` and `save`, which Spark passes as `path`, is the queue.

    Raises:
        InvalidInput: two options have the same name and different values.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given: dict[str, tuple[str, str]] = {}
        for name, value in given.items():
            other, kept = self._given.setdefault(_key(name), (name, value))
            if kept != value:
                raise InvalidInput(f'the options "{other}" ({kept}) and "{name}" ({value}) mean the same: give one')

    def __getitem__(self, name: str) -> str:
        return self._given[_key(name)][1]

    def spelled(self, name: str) -> str:
        """Return an option's name as the user wrote it: with underscores, or as it is known here."""
        given = self._given.get(_key(name), (name, ""))[0]
        return given if "_" in given or given == "path" else name

    def replaced(self, **others: str | None) -> SourceOptions:
        """Return the same options, but some with other values; None leaves an option out."""
        keys = {_key(name): (name, value) for name, value in others.items() if value is not None}
        kept = {key: given for key, given in self._given.items() if key not in map(_key, others)}
        return SourceOptions(dict((kept | keys).values()))

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._given.values())

    def __len__(self) -> int:
        return len(self._given)


def check_known(options: Mapping[str, str], known: Iterable[str], what: str) -> None:
    """Raise InvalidInput for an option that `what` does not have, as a mistyped one would be ignored."""
    names = list(known)
    keys = set(map(_key, names))
    for name in options:
        if _key(name) not in keys:
            raise InvalidInput(f'unknown option "{name}" for {what}; expected one of {", ".join(names)}')


def called(options: Mapping[str, str], name: str) -> str:
    """Return how an error names an option."""
    return f'the option "{options.spelled(name) if isinstance(options, SourceOptions) else name}"'


def whole(options: Mapping[str, str], name: str, most: int) -> int | None:
    """Return an option that is a whole number, 1 to `most`; None if it is left out."""
    text = options.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,18}", text.strip(), re.ASCII) or not 1 <= int(text) <= most:
        raise InvalidInput(f"{called(options, name)} is {text!r}: give a whole number from 1 to {most:,}")
    return int(text)


def switch(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Return an option that is true or false."""
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in _SWITCH:
        raise InvalidInput(f"{called(options, name)} is {text!r}: give true or false")
    return _SWITCH[text.lower()]


def seconds_of(options: Mapping[str, str], name: str, default: float) -> float:
    """Return an option that is a number of seconds, 0 or more."""
    given = options.get(name, str(default))
    try:
        return delay_ms(float(given), called(options, name)) / 1000
    except ValueError as error:
        raise InvalidInput(f"{called(options, name)} is {given!r}: give seconds, 0 or more") from error


def one_of(options: Mapping[str, str], name: str, among: Sequence[str], default: str) -> str:
    """Return an option that is one of some words, in any case."""
    text = options.get(name, default)
    for word in among:
        if word.lower() == text.lower():
            return word
    raise InvalidInput(f"{called(options, name)} is {text!r}: give {', '.join(among[:-1])} or {among[-1]}")


def required(options: Mapping[str, str], name: str) -> str:
    """Return a required option.

    Raises:
        InvalidInput: it is missing or empty.
    """
    value = options.get(name)
    if not value:
        wrong = "is missing" if value is None else "is empty"
        raise InvalidInput(f'{called(options, name)} {wrong}: give .option("{name}", …)')
    return value


def chosen(options: Mapping[str, str], name: str, among: Iterable[T], default: Iterable[T]) -> list[T]:
    """Return the words of a list with commas, each once; each must be one of the allowed words, in any case."""
    text = options.get(name)
    if text is None:
        return list(default)
    allowed: dict[str, T] = {word: word for word in among}
    words = list(dict.fromkeys(word.strip().lower() for word in text.split(",")))
    for word in words:
        if word not in allowed:
            raise InvalidInput(f"{called(options, name)} has {word!r}: give any of {', '.join(allowed)}, with commas")
    return [allowed[word] for word in words]


def texts(options: Mapping[str, str], name: str) -> frozenset[str] | None:
    """Return the texts of a list with commas, or of a JSON array; None if the option is left out."""
    text = options.get(name)
    if text is None or not text.startswith("["):
        return None if text is None else frozenset(each.strip() for each in text.split(","))
    try:
        return frozenset(msgspec.json.decode(text, type=list[str]))
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{called(options, name)} is not a JSON array of strings: {error}") from error


def bound_ms(options: Mapping[str, str], name: str) -> int | None:
    """Return an option that is a time as milliseconds since 1970; it is given as these, or as for `moment_ms`."""
    text = options.get(name)
    if text is None:
        return None
    if _MS.fullmatch(text) and int(text) <= MAX_TIME_MS:
        return int(text)
    return moment_ms(text, called(options, name), "milliseconds since 1970, or a time")


def moment_ms(text: str, what: str, forms: str) -> int:
    """Return a time in ISO 8601 with a zone as milliseconds since 1970, rounded up.

    Args:
        what: how the error names the option.
        forms: what the option may be, for the error.

    Raises:
        InvalidInput: the text is not a time, has no zone, or is before 1970.
    """
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{what} is {text!r}: give {forms} as in 2026-12-24T18:00:00+01:00") from error
    if moment.utcoffset() is None:
        raise InvalidInput(f"{what} is {text!r}, which has no time zone: add one, as in {text}+00:00")
    return timestamp_ms(moment, what)


def report_missing(what: str, fails: bool) -> None:
    """Warn that the source of a read does not exist, or raise InvalidInput if the option `failOnMissing` is on."""
    if fails:
        raise InvalidInput(f"{what} does not exist: check its name and the options url and prefix")
    log.warning("nothing to read", what=what)


def _key(name: str) -> str:
    key = name.lower().replace("_", "")
    return "queue" if key == "path" else key
