"""The settings that `Queue.configure` stores. A row says how one is named, written, checked, stored and read.

The command line's options, the dashboard's form and the fields of the HTTP API are made from these rows. Settings are
stored in the queue's ``meta`` key in Redis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from delayq.errors import InvalidInput
from delayq.model import backoff as backoffs
from delayq.model.backoff import MAX_RETRIES, WrittenBackoff
from delayq.model.rate_text import parse_rate, show_rate

Changes: TypeAlias = dict[str, int | str | None]
"""Fields of ``meta`` with their new values. None removes a field; "N?" sets N only if the field has no value yet."""

MOST_AT_ONCE = 1_000_000
MOST_EVENTS = 10_000_000
MOST_LENGTH = 10_000_000
DEFAULT_EVENTS = 100_000
MAX_BACKOFF = 1000  # characters: clients read it each minute


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting whose values are text.

    Attributes:
        name: of the argument of `configure`, and of the field of a `Configuration`.
        label: its name in a listing. With "-" for " ", it is the option of the command line.
        title: its name on a page.
        help: a sentence about it for the command line.
        about: a phrase about it for the HTTP API.
        form: examples or the range of its values.
        none: what applies without it.
        metavar: the placeholder of its value in a command.
        fields: of ``meta``; the first one is there if the setting has a value.
        is_limit: whether each shard would count on its own.
    """

    name: str
    label: str
    title: str
    help: str
    about: str
    none: str
    form: str = ""
    metavar: str = "N"
    fields: tuple[str, ...]
    is_limit: bool = False

    @property
    def kind(self) -> Any:
        """The type of its values in the HTTP API."""
        return str

    def parse(self, text: str) -> Any:
        """Return the value that somebody has written; raises InvalidInput."""
        self.stored(text)
        return text

    def stored(self, value: Any) -> Changes:
        """Return the fields for a value, which is None to remove the setting; raises InvalidInput."""
        raise NotImplementedError

    def read(self, stored: Mapping[str, str]) -> Any:
        """Return the value that the fields of `stored` hold; None if there is none, or one that cannot be read."""
        raise NotImplementedError


class RateSetting(Setting, frozen=True):
    """Messages in a span of time: 1 to 100,000 in 1 ms to a day."""

    def stored(self, value: Any) -> Changes:
        return dict(zip(self.fields, (None, None) if value is None else parse_rate(value), strict=True))

    def read(self, stored: Mapping[str, str]) -> str | None:
        rate, period_ms = (_number(stored, field) for field in self.fields)
        return show_rate(rate, period_ms) if rate and period_ms else None


class BackoffSetting(Setting, frozen=True):
    """One from `delayq.backoff`, or its text."""

    def stored(self, value: Any) -> Changes:
        return {self.fields[0]: None if value is None else _written(value)}

    def read(self, stored: Mapping[str, str]) -> str | None:
        text = stored.get(self.fields[0])
        try:
            if text:
                backoffs.parse(text)
        except InvalidInput:
            return None
        return text


class NumberSetting(Setting, frozen=True, kw_only=True):
    """A setting whose values are whole numbers from `least` to `most`."""

    least: int = 1
    most: int = MOST_AT_ONCE
    others: ClassVar[str] = ""  # values other than numbers

    def __post_init__(self) -> None:
        force_setattr(self, "form", f"{self.least:,} to {self.most:,}")

    @property
    def kind(self) -> Any:
        return Annotated[int, Meta(ge=self.least, le=self.most)]

    def parse(self, text: str) -> int:
        if not text.isdecimal() or not self.least <= int(text[:9]) <= self.most:
            raise InvalidInput(f"{text!r} is not a whole number from {self.least:,} to {self.most:,}")
        return int(text)

    def stored(self, value: Any) -> Changes:
        valid = isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most
        if not valid and value is not None:
            valid_ones = f"{self.others}a whole number from {self.least:,} to {self.most:,}"
            remedy = f"; use None for {self.none}" if self.none.startswith("no ") else ""
            raise InvalidInput(f"{self.name} {value!r} is not {valid_ones}{remedy}")
        return {self.fields[0]: value}

    def read(self, stored: Mapping[str, str]) -> int | None:
        number = _number(stored, self.fields[0])
        return None if number is None or number < self.least else min(number, self.most)


class LedgerSetting(NumberSetting, frozen=True):
    """Also True, which keeps the stored number, or sets `DEFAULT_EVENTS` if there is none, and False for no ledger."""

    others = "True, False or "

    def stored(self, value: Any) -> Changes:
        if isinstance(value, bool):
            return {self.fields[0]: f"{DEFAULT_EVENTS}?" if value else None}
        return super().stored(value)


SETTINGS: Final[dict[str, Setting]] = {
    each.name: each
    for each in (
        RateSetting(
            name="rate",
            label="rate",
            title="Maximum rate",
            help="Deliver at most this many messages per period: 100/s, 5/10s, 20/100ms, 9/min.",
            about="the maximum rate of deliveries, such as 100/s, 5/10s or 9/min.",
            none="no limit",
            form="100/s, 5/10s, 9/min",
            metavar="N/TIME",
            fields=("rate", "period_ms"),
            is_limit=True,
        ),
        NumberSetting(
            name="concurrency",
            label="concurrency",
            title="Maximum messages running at once",
            help="Run at most this many messages at a time.",
            about="the maximum number of messages running at once.",
            none="no limit",
            fields=("concurrency",),
            is_limit=True,
        ),
        NumberSetting(
            name="concurrency_per_key",
            label="per key",
            title="Maximum running at once per key",
            help="Run at most this many messages per key at a time.",
            about="the same, for messages that share a key.",
            none="no limit",
            fields=("per_key",),
            is_limit=True,
        ),
        LedgerSetting(
            name="events",
            label="events",
            title="Ledger events to keep",
            help="Keep a ledger: one event for each step of a message, at most N events. Default N: 100000.",
            about="the number of events that the ledger keeps; null turns it off.",
            none="no ledger",
            metavar="[N]",
            most=MOST_EVENTS,
            fields=("events",),
        ),
        NumberSetting(
            name="max_retries",
            label="max retries",
            title="Retries of messages sent without their own number",
            help="Deliveries after the first one, for messages sent without --max-retries.",
            about="retries of messages that are sent without their own number.",
            none="set by each program",
            least=0,
            most=MAX_RETRIES,
            fields=("max_retries",),
        ),
        BackoffSetting(
            name="backoff",
            label="backoff",
            title="Backoff before retries",
            help="The waits before retries: fixed:10s, linear:base=1s,step=5s,maximum=1h, "
            "exponential:base=10s,factor=3,maximum=1h,jitter=0.1 or sequence:1s,10s,1m.",
            about="the waits before retries, such as fixed:10s or exponential:base=10s,factor=3.",
            none="set by each program",
            form="fixed:10s, exponential:base=10s,factor=3,maximum=1h",
            metavar="TEXT",
            fields=("backoff",),
        ),
        NumberSetting(
            name="max_dead",
            label="max dead",
            title="Maximum dead letters to keep",
            help="Keep at most N dead letters; the oldest are purged.",
            about="the maximum number of dead letters; the oldest are purged.",
            none="no limit",
            fields=("max_dead",),
        ),
        NumberSetting(
            name="max_length",
            label="max length",
            title="Maximum messages in the queue",
            help="Refuse sends while N messages of the queue wait or run. Dead letters do not count.",
            about="the maximum number of messages that wait or run; sends beyond it are refused.",
            none="no limit",
            most=MOST_LENGTH,
            fields=("max_length",),
            is_limit=True,
        ),
    )
}
"""By name, in the order in which they are shown."""

FIELDS: Final = tuple(field for each in SETTINGS.values() for field in each.fields)
"""In the order in which scripts return their values."""

LIMITS: Final = frozenset(field for each in SETTINGS.values() if each.is_limit for field in each.fields)


def _number(stored: Mapping[str, str], field: str) -> int | None:
    text = stored.get(field, "")
    return int(text) if len(text) < 10 and text.isascii() and text.isdecimal() else None


def _written(backoff: Any) -> str:
    """Return the text of a backoff; raises InvalidInput for one that cannot be stored."""
    found = backoffs.parse(backoff) if isinstance(backoff, str) else backoff
    if not isinstance(found, WrittenBackoff):
        raise InvalidInput(
            f"backoff {backoff!r} cannot be stored: use one from delayq.backoff (fixed, linear, exponential, "
            "sequence), or pass your own function to the constructor, Queue(backoff=…)"
        )
    if len(found.text) > MAX_BACKOFF:
        raise InvalidInput(f"backoff {found.text[:40]!r}… is longer than {MAX_BACKOFF:,} characters: give fewer waits")
    return found.text
