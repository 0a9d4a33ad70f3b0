"""The state of `delayq top`, and what each key changes: logic without a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .columns import COLUMNS, ordered
from .snapshot import QueueRow, TopicRow

Page = Literal["queues", "queue", "topics", "help"]

KEYS = {
    "< >": "sort by the column to the left or right",
    "r": "reverse the order",
    "/": "show only queues whose name contains a text; Enter applies it, Esc clears it",
    "↑ ↓": "select a queue; also k and j, PgUp and PgDn, Home and End",
    "Enter": "show the details of the selected queue; Esc goes back",
    "P": "pause or resume the selected queue; y confirms",
    "t": "show the topics; Esc goes back",
    "p": "freeze the display, or resume it",
    "Space": "refresh now",
    "?": "show this help; also h",
    "q": "quit; also Ctrl-C",
}
HELP_LINE = "<> sort  r reverse  / filter  ↑↓ Enter  t topics  P pause  ? help  q quits"
PAGE = 10  # queues per PgUp and PgDn


class TopView:
    """The state of the display.

    Attributes:
        page: the page that is shown.
        sort: the sort column.
        is_reversed: whether the order of that column is reversed.
        filter: the text that names must contain.
        is_typing: whether keys go into the filter.
        is_paused: whether the display is frozen.
        to_confirm: the queue to pause or resume if the next key is y, or None.
        to_pause: the queue to pause or resume now, or None.
        topics: the rows of the topics page.
        has_ended: whether q was pressed.
    """

    def __init__(self) -> None:
        self.page: Page = "queues"
        self.sort = "queue"
        self.is_reversed = False
        self.filter = ""
        self.is_typing = self.is_paused = self.has_ended = False
        self.wants_look = False
        self.to_confirm: QueueRow | None = None
        self.to_pause: QueueRow | None = None
        self.topics: Sequence[TopicRow] = ()
        self._selected: str | None = None
        self._pulses: Sequence[QueueRow] = ()
        self._shown: list[QueueRow] = []

    def take(self, pulses: Sequence[QueueRow]) -> None:
        """Show these queues from now on."""
        self._pulses = pulses
        wanted = self.filter.casefold()
        named = (each for each in pulses if wanted in each.queue.casefold())
        self._shown = ordered(named, self.sort, self.is_reversed)

    @property
    def shown(self) -> Sequence[QueueRow]:
        """The queues of the list, in order."""
        return self._shown

    @property
    def selected(self) -> int:
        """The index of the selected queue; 0 if it is gone or none was selected."""
        names = [each.queue for each in self._shown]
        return names.index(self._selected) if self._selected in names else 0

    @property
    def pulse(self) -> QueueRow | None:
        """The selected queue."""
        return self._shown[self.selected] if self._shown else None

    def press(self, key: str) -> None:
        """Handle a key: a character, or the name of a key, such as "up"."""
        if self.is_typing:
            self._type(key)
        elif self.to_confirm is not None:
            self.to_pause, self.to_confirm = (self.to_confirm if key == "y" else None), None
        elif key in ("q", "Q"):
            self.has_ended = True
        elif key == "escape":
            self._go_back()
        elif self.page == "help":
            self.page = "queues"
        elif key in ("?", "h"):
            self.page = "help"
        elif key == "t":
            self.page, self.wants_look = ("queues" if self.page == "topics" else "topics"), True
        else:
            self._change(key)
        self.take(self._pulses)

    def _go_back(self) -> None:
        if self.page != "queues":
            self.page = "queues"
        elif self.filter:
            self.filter = ""
        else:
            self.has_ended = True

    def _change(self, key: str) -> None:
        if key in ("<", ">", "left", "right"):
            names = list(COLUMNS)
            step = 1 if key in (">", "right") else -1
            self.sort, self.is_reversed = names[(names.index(self.sort) + step) % len(names)], False
        elif key in ("r", "R"):
            self.is_reversed = not self.is_reversed
        elif key == "/":
            self.is_typing, self.page = True, "queues"
        elif key == "P" and self.page != "topics":
            self.to_confirm = self.pulse
        elif key == "p":
            self.is_paused = not self.is_paused
        elif key == " ":
            self.wants_look = True
        elif key == "enter" and self.page == "queues" and self.pulse is not None:
            self.page, self._selected = "queue", self.pulse.queue
        elif key in STEPS:
            self._select(self.selected + STEPS[key])

    def _select(self, place: int) -> None:
        if self._shown:
            self._selected = self._shown[max(0, min(place, len(self._shown) - 1))].queue

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.is_typing = False
            self.filter = "" if key == "escape" else self.filter
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter += key


FAR = 10**9
STEPS = {
    "up": -1,
    "k": -1,
    "down": 1,
    "j": 1,
    "pageup": -PAGE,
    "pagedown": PAGE,
    "home": -FAR,
    "end": FAR,
}
