"""Which queues of a server are listed: a page of them, of those whose names or troubles are asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

import msgspec

PAGE = 50
LEAST_PAGE = 10
"""Queues of a page, where it has those of several servers."""


class NamePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of names.

    Attributes:
        names: in order.
        first: the place of the first of them, from 0.
        matched: how many there are on all pages.
        back, following, last: the names that other pages begin with; None where there is no such page.
    """

    names: tuple[str, ...] = ()
    first: int = 0
    matched: int = 0
    back: str | None = None
    following: str | None = None
    last: str | None = None


class QueueListView(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues somebody wants to see.

    Attributes:
        name: text that their names hold, in capitals or not; empty for all.
        troubled: whether only those in trouble.
        start: the name that the page begins with; when it is gone, the next one behind it.
        rows: queues of a page.
    """

    name: str = ""
    troubled: bool = False
    start: str = ""
    rows: int = PAGE

    @classmethod
    def of(cls, fields: Mapping[str, str], rows: int = PAGE) -> QueueListView:
        """Read the fields of a link, or of the form that filters."""
        asked = fields.get("rows", "")
        if asked.isdecimal() and len(asked) < 4:
            rows = min(max(int(asked), LEAST_PAGE), PAGE)
        name, start = fields.get("name", "").strip(), fields.get("start", "")
        return cls(name=name, troubled=fields.get("trouble") == "1", start=start, rows=rows)

    def fields(self) -> dict[str, str]:
        """Return what `of` reads, but for where the page begins and how long it is."""
        return {"name": self.name, "trouble": "1" if self.troubled else ""}

    @property
    def tells(self) -> bool:
        """Whether queues in trouble are called by their names, wherever they are listed."""
        return not self.troubled

    @property
    def is_of_all(self) -> bool:
        """Whether no queue is left out."""
        return not (self.name or self.troubled)

    def listed(self, names: Sequence[str], troubled: Collection[str]) -> NamePage:
        """Return the page of all names, which are in order."""
        text = self.name.casefold()
        found = [each for each in names if text in each.casefold() and (not self.troubled or each in troubled)]
        if not found:
            return NamePage()
        first = min(bisect_left(found, self.start), len(found) - 1)
        behind, last = first + self.rows, (len(found) - 1) // self.rows * self.rows
        return NamePage(
            names=tuple(found[first:behind]),
            first=first,
            matched=len(found),
            back=found[max(0, first - self.rows)] if first else None,
            following=found[behind] if behind < len(found) else None,
            last=found[last] if behind < len(found) else None,
        )


class SingleQueue(msgspec.Struct, frozen=True):
    """One queue, whether a search has found it yet or not."""

    name: str

    @property
    def troubled(self) -> bool:
        """Whether only queues in trouble are wanted."""
        return False

    @property
    def tells(self) -> bool:
        """Whether others are told of."""
        return False

    def listed(self, names: Sequence[str], troubled: Collection[str]) -> NamePage:  # noqa: ARG002  # as `QueueListView` has it
        """Return the one."""
        return NamePage(names=(self.name,), matched=1)
