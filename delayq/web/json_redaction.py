"""JSON without hidden values: the rest stays exactly as it was written, with its numbers, spaces and repeated names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from delayq.web.hidden_names import HiddenNames

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*"|[{}\[\],:]|[^"{}\[\],:\s]++')


class _Container:
    """An object or a list that has begun.

    Attributes:
        start: its place in the text.
        cuts: the number of cuts before it.
        is_object: whether it is an object.
        is_hidden: whether to hide all of it.
    """

    __slots__ = ("cuts", "is_hidden", "is_object", "start")

    def __init__(self, start: int, cuts: int, is_object: bool, is_hidden: bool) -> None:
        self.start, self.cuts, self.is_object, self.is_hidden = start, cuts, is_object, is_hidden


class JsonRedaction:
    """Replaces hidden values in a valid JSON text.

    It hides the value of each hidden field, and each object or list with a text that is nothing but a hidden name: the
    value may be beside it, as in ``["password", "x"]`` and ``{"name": "password", "value": "x"}``.

    Args:
        shown: returns a text in it, or the name of a field, without hidden values.
        instead: the JSON that replaces a hidden value.
    """

    def __init__(self, text: str, names: HiddenNames, shown: Callable[[str], str], instead: str) -> None:
        self._text, self._names, self._shown, self._instead = text, names, shown, instead
        self._cuts: list[tuple[int, int, str]] = []  # start, end, and what replaces it
        self._open: list[_Container] = []
        self._is_name = False  # the next text is the name of a field
        self._hides = False  # the next value is hidden

    def result(self) -> str:
        """Return the text without hidden values."""
        for match in _TOKEN.finditer(self._text):
            token = match[0]
            if token[0] == '"':
                self._take_text(token, match.start(), match.end())
            elif token in "{[":
                self._open.append(_Container(match.start(), len(self._cuts), token == "{", self._hides))
                self._is_name, self._hides = token == "{", False
            elif token in "}]":
                self._close(match.end())
            elif token == ",":
                self._is_name = self._open[-1].is_object
            elif self._hides and token != ":":
                self._hide(match.start(), match.end())
        return "".join(self._parts())

    def _take_text(self, token: str, start: int, end: int) -> None:
        if self._hides:
            self._hide(start, end)
            return
        text = token[1:-1] if "\\" not in token else msgspec.json.decode(token, type=str)
        is_name, self._is_name = self._is_name, False
        if not self._names.are_in(text):
            return
        if is_name:
            self._hides = self._names.is_field(text)
        elif self._open and self._names.are_all_of(text):
            self._open[-1].is_hidden = True
        shown = self._shown(text)
        if shown != text:
            self._cuts.append((start, end, msgspec.json.encode(shown).decode()))

    def _hide(self, start: int, end: int) -> None:
        self._cuts.append((start, end, self._instead))
        self._hides = False

    def _close(self, end: int) -> None:
        closed = self._open.pop()
        if closed.is_hidden:
            self._cuts[closed.cuts :] = [(closed.start, end, self._instead)]

    def _parts(self) -> Iterator[str]:
        place = 0
        for start, end, instead in self._cuts:
            yield self._text[place:start]
            yield instead
            place = end
        yield self._text[place:]
