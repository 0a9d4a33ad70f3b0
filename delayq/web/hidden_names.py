"""The names of hidden fields, and where a text contains one, however it is written or encoded."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from delayq.web.decodings import Form, Undecided, contents, forms

MOST_FOLDED = 70_000
"""The number of characters whose normal form is remembered."""

MOST_REMEMBERED = 4096
"""How many short texts the cache remembers: most are names of fields."""

SHORT = 40  # characters

LEAST_WORK, WORK_PER_CHARACTER, MOST_WORK = 16_000, 9, 6_500_000
"""The characters of forms to search in a payload: for one of any length, for each character of it, and at most.

A million take about 0.2 s, during which the dashboard answers nobody else.
"""

WORK_PER_FORM = 150
"""What each form costs in addition: as much as this number of characters."""

MOST_OF_NAME = 1000  # characters of a name, encoded

_WORD = re.compile(r"[^\W_]")
_SPECIAL = re.compile(r"[^ !\"#$'-*,-<>-\[\]-~]")  # \, %, &, +, =, and what is not printable
_SQUEEZED = str.maketrans("", "", "\n +")


class _Folded(dict[int, str]):
    """The normal form of each character, filled as they occur."""

    def __missing__(self, point: int) -> str:
        if len(self) >= MOST_FOLDED:
            self.clear()
        self[point] = found = _folded(chr(point))
        return found


def _folded(char: str) -> str:
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    return "".join("\n" if _may_be_unseen(each) else " " if each.isspace() else _SAME.get(each, each) for each in plain)


def _may_be_unseen(char: str) -> bool:
    return unicodedata.category(char) in _UNSEEN_KINDS or char in "\u115f\u1160\u2800\ufffd"  # fillers that are letters


_SAME = {"\u0131": "i"}  # the dotless i of Turkish: the small form of I there
_UNSEEN_KINDS = {"Cc", "Cf", "Cs", "Co", "Cn", "Mn", "Me", "Zl", "Zp"}
_FOLDED = _Folded()


def normal(text: str) -> str:
    """Return the normal form of a text, in which names are searched: case and compatibility forms do not count.

    Each character that may be invisible, such as a zero-width space, an accent or a line end, becomes a line end.
    """
    return text.lower() if text.isascii() and text.isprintable() else text.translate(_FOLDED)


def plain_name(name: str) -> str:
    """Return the normal form of a name; empty if nothing of it is visible."""
    return normal(name).replace("\n", "").strip()


class TooMuch(Exception):
    """There is more to search than `bounded` allows."""


class HiddenNames:
    """The names of hidden fields, each visible.

    A text contains a name if no letter or digit follows: ``access_token`` contains ``token``, and ``tokens`` does not.
    A field is hidden if no letter or digit stands before the name either, as in ``user.token``.
    """

    def __init__(self, names: Iterable[str]) -> None:
        given = list(names)
        self._is_ascii = all(map(str.isascii, given))
        known = sorted(set(map(plain_name, given)))
        self._squeezed = [name.translate(_SQUEEZED) for name in known]
        self._shortest = min(map(len, self._squeezed), default=0)
        self._run = re.compile(rf"[A-Za-z0-9/_-]{{{-(-self._shortest * 4 // 3)}}}")
        name = rf"(?:{'|'.join(map(_pattern, known))})(?![-_]{{0,8}}[^\W_])"
        self._name = re.compile(name)
        self._field = re.compile(rf"(?<![^\W_])(?<![^\W_][-_]){name}")
        self._alone = re.compile(rf"[\W_]*(?:[^ ]*(?<![^\W_])(?<![^\W_][-_]))?{name}[\W_]*")
        self._left: float | None = None  # work
        self._are_in_short = lru_cache(MOST_REMEMBERED)(self._are_in)

    def __bool__(self) -> bool:
        return bool(self._squeezed)

    @contextlib.contextmanager
    def bounded(self, size: int) -> Iterator[None]:
        """Raise TooMuch if the block takes too much work for a payload of this size. Harmless texts are free.

        A block in another one shares its work.
        """
        if self._left is not None:
            yield
            return
        self._left = min(LEAST_WORK + WORK_PER_CHARACTER * size, MOST_WORK)
        try:
            yield
        finally:
            self._left = None

    def are_in(self, text: str) -> bool:
        """Whether a text or anything that it stands for contains a name; True if that cannot be decided."""
        return self._are_in_short(text) if len(text) <= SHORT else self._are_in(text)

    def is_field(self, name: str) -> bool:
        """Whether a field with this name is hidden; True if that cannot be decided."""
        return self._any(self._field.search, name)

    def have_values_in(self, text: str) -> bool:
        """The same, and a value may follow the name or be in front of it."""
        return self._any_form(self._value, text)

    def are_all_of(self, text: str) -> bool:
        """Whether a text is nothing but the name of a hidden field."""
        if len(text) > MOST_OF_NAME:
            return False
        if any(self._alone.fullmatch(normal(each)) for each in contents(text)):
            return True
        return self._any_form(self._all, text, if_undecided=False)

    def place(self, text: str) -> tuple[int, int] | None:
        """Return the start and the end of the first name in a text as it is written, or None."""
        match = self._name.search(normal(text))
        return match and (_before(text, match.start()), _before(text, match.end() - 1) + 1)

    def _are_in(self, text: str) -> bool:
        return self._any(self._name.search, text)

    def _all(self, form: Form) -> Any:
        return not form.is_part and self._alone.fullmatch(form.text)

    def _value(self, form: Form) -> Any:
        match = self._name.search(form.text)
        if match is None or form.is_part:  # the value may be in the text around it
            return match
        return _WORD.search(form.text, match.end()) or is_value(form.text, match.start(), match.end())

    def _any(self, wanted: Callable[[str], Any], text: str, if_undecided: bool = True) -> bool:
        return self._any_form(lambda form: wanted(form.text), text, if_undecided)

    def _any_form(self, wanted: Callable[[Form], Any], text: str, if_undecided: bool = True) -> bool:
        if self._is_harmless(text):
            return False
        try:
            with self.bounded(len(text)):
                found = map(_normal_form, self._paid(forms(text, self._shortest, self._is_ascii)))
                return any(wanted(each) for each in found if self._may_be_in(each.text))
        except Undecided:
            return if_undecided

    def _paid(self, found: Iterator[Form]) -> Iterator[Form]:
        for each in found:
            assert self._left is not None
            self._left -= len(each.text) + WORK_PER_FORM
            if self._left < 0:
                raise TooMuch
            yield each

    def _is_harmless(self, text: str) -> bool:
        """Whether a text stands for nothing else and contains no name: a quick look, which most texts pass."""
        if not text.isascii() or _SPECIAL.search(text) or self._run.search(text):
            return False
        return not self._may_be_in(text.lower())

    def _may_be_in(self, form: str) -> bool:
        squeezed = form.translate(_SQUEEZED)
        return any(name in squeezed for name in self._squeezed)


def _normal_form(form: Form) -> Form:
    return Form(normal(form.text), form.is_part)


def is_value(text: str, start: int, end: int) -> bool:
    """Whether a name in a text is itself a value, so that the value of the field may be in front of it.

    For example, in ``value=x name=password`` and in ``{'value': 'x', 'name': 'password'}``.
    """
    before = text[max(0, start - 8) : start]
    if _SEPARATED.match(text, end) or not (_GIVEN.search(before) or _QUOTED.search(before)):
        return False
    return bool(_GIVEN.search(before) or opening(text, start) is not None)


def opening(text: str, end: int) -> int | None:
    """Return the place of the first bracket in the beginning of a text, or None."""
    match = _OPENING.search(text, 0, end)
    return match and match.start()


_SEPARATED = re.compile(r"""\\*["']?\s*[:=]""")
_GIVEN = re.compile(r"""=[\s\\]*["']?\Z""")
_QUOTED = re.compile(r"""["']\Z""")
_OPENING = re.compile(r"[\[({<]")


def _pattern(name: str) -> str:
    """Return a pattern of a name with invisible characters anywhere, and with plus signs for spaces, as in forms."""
    words = (r"\n*+".join(map(re.escape, word)) for word in name.split())
    return r"[ \n+]++".join(words)


def _before(text: str, position: int) -> int:
    """Return where in a text the character is that a position in its normal form belongs to."""
    if text.isascii():
        return position
    start, size = 0, len(text)
    while size > 1:
        half = size // 2
        length = len(normal(text[start : start + half]))
        if length <= position:
            start, position, size = start + half, position - length, size - half
        else:
            size = half
    return start
