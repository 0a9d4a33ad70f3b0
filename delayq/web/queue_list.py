"""Which queues a page lists, and in which order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from delayq.errors import InvalidInput
from delayq.model.totals import QueueFigures

PAGE = 50
T = TypeVar("T", bound=str)
MOST_DIGITS = 10
LEAST_PAGE = 10
"""The minimum number of queues per server on a page with several servers."""

SORTS: dict[str, str] = {
    "name": "",
    "scheduled": "scheduled",
    "due": "due",
    "running": "running",
    "retrying": "retrying",
    "dead": "dead",
    "in": "sent",
    "out": "acked",
    "late-50": "lateness_p50",
    "late-99": "lateness_p99",
    "overdue": "overdue",
    "consumers": "consumers",
}
"""What queues can be sorted by, and the field of `QueueFigures` that holds it."""

Order = Literal["asc", "desc"]
ORDERS: tuple[Order, ...] = ("asc", "desc")


class NamePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of names.

    Attributes:
        names: the names, in order.
        first: the index of the first name, from 0.
        matched: the number of names on all pages.
        back, following, last: the `QueueListView.start` of other pages; None if there is no such page.
    """

    names: tuple[str, ...] = ()
    first: int = 0
    matched: int = 0
    back: str | None = None
    following: str | None = None
    last: str | None = None


class QueueListView(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues a list shows.

    Attributes:
        name: text in their names, in upper or lower case; empty for all.
        troubled: whether to list only queues in trouble.
        start: the first name of the page; if it is gone, the page starts with the next one. In lists that are not
            sorted by name, the number of queues before the page.
        rows: queues per page.
        sort: a key of `SORTS`.
        order: ascending or descending.
        is_dense: whether rows are low.
    """

    name: str = ""
    troubled: bool = False
    start: str = ""
    rows: int = PAGE
    sort: str = "name"
    order: Order = "asc"
    is_dense: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, str], rows: int = PAGE) -> QueueListView:
        """Read the fields of a link, or of the form that filters; raises InvalidInput."""
        asked = fields.get("rows", "")
        if asked.isdecimal() and len(asked) < 4:
            rows = min(max(int(asked), LEAST_PAGE), PAGE)
        name, start = fields.get("name", "").strip(), fields.get("start", "")
        sort = fields.get("sort") or "name"
        return cls(
            name=name,
            troubled=fields.get("trouble") == "1",
            start=start,
            rows=rows,
            sort=_known("sort", sort, tuple(SORTS)),
            order=_known("order", fields.get("order") or _first_order(sort), ORDERS),
            is_dense=fields.get("dense") == "1",
        )

    def fields(self) -> dict[str, str]:
        """Return the fields that `of` reads, without the start and length of the page."""
        return {"name": self.name, "trouble": "1" if self.troubled else ""} | self.looks()

    def looks(self) -> dict[str, str]:
        """Return the fields for the order and look of the list, without filters."""
        sort, order = ("", "") if self.is_by_name else (self.sort, self.order)
        return {"sort": sort, "order": order, "dense": "1" if self.is_dense else ""}

    def sorted_by(self, sort: str) -> QueueListView:
        """Return the first page sorted by a column, or reversed if it is already sorted by it."""
        turned: Order = "asc" if self.order == "desc" else "desc"
        order = turned if sort == self.sort else _first_order(sort)
        return msgspec.structs.replace(self, sort=sort, order=order, start="")

    def with_rows(self, is_dense: bool) -> QueueListView:
        """Return the same list with low or high rows."""
        return msgspec.structs.replace(self, is_dense=is_dense)

    @property
    def is_by_name(self) -> bool:
        """Whether the list is sorted by name, ascending."""
        return (self.sort, self.order) == ("name", "asc")

    @property
    def needs_all(self) -> bool:
        """Whether all queues must be checked to know which are on the page."""
        return self.troubled or self.sort != "name"

    @property
    def tells(self) -> bool:
        """Whether queues in trouble are named above the list."""
        return not self.troubled

    @property
    def is_of_all(self) -> bool:
        """Whether the list includes all queues."""
        return not (self.name or self.troubled)

    def listed(
        self, names: Sequence[str], troubled: Collection[str], figures: Mapping[str, QueueFigures] | None = None
    ) -> NamePage:
        """Return this page of all names, which are in order.

        Args:
            figures: the figures of the queues that were checked; the others come last.
        """
        text = self.name.casefold()
        found = [each for each in names if text in each.casefold() and (not self.troubled or each in troubled)]
        if not found:
            return NamePage()
        found = self.ranked(found, figures or {})
        first = min(self._place(found), len(found) - 1)
        behind, last = first + self.rows, (len(found) - 1) // self.rows * self.rows
        starts = found if self.is_by_name else [*map(str, range(len(found)))]
        return NamePage(
            names=tuple(found[first:behind]),
            first=first,
            matched=len(found),
            back=starts[max(0, first - self.rows)] if first else None,
            following=starts[behind] if behind < len(found) else None,
            last=starts[last] if behind < len(found) else None,
        )

    def ranked(self, names: Sequence[str], figures: Mapping[str, QueueFigures]) -> list[str]:
        """Return names in the requested order; unknown values come last in both orders."""
        is_reversed = self.order == "desc"
        if self.sort == "name":
            return sorted(names, reverse=is_reversed)
        found = {name: getattr(figures.get(name), SORTS[self.sort], None) for name in sorted(names)}
        values: dict[str, float] = {name: value for name, value in found.items() if value is not None}
        known = sorted(values, key=values.__getitem__, reverse=is_reversed)
        return known + [name for name in found if name not in values]

    def _place(self, found: Sequence[str]) -> int:
        """Return the index of the first queue of the page."""
        if self.is_by_name:
            return bisect_left(found, self.start)
        return int(self.start) if self.start.isdecimal() and len(self.start) < MOST_DIGITS else 0


def _first_order(sort: str) -> Order:
    """Return the initial order: names ascending, figures descending."""
    return "asc" if sort == "name" else "desc"


def _known(field: str, value: str, values: tuple[T, ...]) -> T:
    for each in values:
        if each == value:
            return each
    raise InvalidInput(f"unknown {field} {value!r}; expected one of {', '.join(values)}")


class SingleQueue(msgspec.Struct, frozen=True):
    """One queue, even if no search has found it yet."""

    name: str

    @property
    def needs_all(self) -> bool:
        """Whether all queues must be checked."""
        return False

    @property
    def tells(self) -> bool:
        """Whether other queues in trouble are named."""
        return False

    def listed(self, *_: object) -> NamePage:
        """Return the page of this queue."""
        return NamePage(names=(self.name,), matched=1)

    def ranked(self, names: Sequence[str], _: object) -> list[str]:
        """Return this queue."""
        return list(names)
