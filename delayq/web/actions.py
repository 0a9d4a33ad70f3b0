"""An action on messages, as sent by a form: which action, which messages, and with which settings."""

from __future__ import annotations

import datetime as dt
import re
from typing import NamedTuple

import msgspec
from starlette.datastructures import QueryParams

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.model.placement import State
from delayq.model.units import delay_ms, milliseconds, parse_age, parse_duration, timestamp_ms
from delayq.operations.bulk.actions import (
    Act,
    Due,
    burying,
    cancelling,
    requeueing,
    rescheduling,
    retiming,
    shifted,
    spread,
)
from delayq.operations.bulk.redrive import Redrive
from delayq.operations.bulk.sweep import Sweep
from delayq.operations.encode import due_word
from delayq.operations.manage import PURGEABLE
from delayq.web import jobs
from delayq.web.background_tasks import Work
from delayq.web.filters import MessageFilter, quoted, unquoted
from delayq.web.forms import InvalidField, field
from delayq.web.redaction import Redaction
from delayq.web.states import WORDS

WAITING: tuple[State, ...] = ("pending", "ready", "retry")
MOST_IDS = 500
PAGES = ("dead", "message")


class ActionKind(NamedTuple):
    """A kind of action.

    Attributes:
        verb: the text of its button.
        states: the states of messages that it applies to.
        warning: what to know before confirming it.
    """

    verb: str
    states: tuple[State, ...]
    warning: str


KINDS = {
    "now": ActionKind("Run now", WAITING, "They become due now. Their attempts still count."),
    "reschedule": ActionKind("Reschedule", WAITING, "Their attempts still count."),
    "bury": ActionKind("Bury", WAITING, "They become dead letters, which you can inspect, requeue or delete."),
    "requeue": ActionKind("Requeue", ("dead",), "They are scheduled again with all their retries."),
    "cancel": ActionKind(
        "Cancel", (*PURGEABLE, "unack"), "You cannot undo this. Running messages finish, but are not retried."
    ),
    "purge": ActionKind(
        "Purge",
        PURGEABLE,
        "They are deleted for good. Messages that arrive later stay.",
    ),
}


def verb_of(act: str, state: str) -> str:
    """Return the text of an action's button: a dead letter is deleted, not cancelled."""
    return "Delete" if act == "cancel" and state == "dead" else KINDS[act].verb


def check_act(act: str, state: State) -> None:
    """Raise InvalidInput if an action does not apply to messages in a state."""
    if state not in KINDS[act].states:
        raise InvalidInput(f"{verb_of(act, state)} is not possible for {WORDS[state]} messages")


class ActionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An action on messages, as sent by a form.

    Attributes:
        act: a key of KINDS.
        page: where the form is: "dead", "message", or empty for the list.
        ids: the selected messages; empty if `filter` selects them.
        filter: which messages to act on, and in which state.
        when: for "reschedule": a duration from now, or a time; with a sign, a shift of each message's own time.
        spread: for "reschedule": the duration over which new times are spread.
        delay: for "requeue": until they are due.
        rate: for "requeue" by a filter: the maximum rate.
        dry: whether to count only.
        most: for "purge": the number of messages that were counted.
        up_to: for "purge": the highest score of these, ms.
    """

    act: str
    filter: MessageFilter
    page: str = ""
    ids: tuple[str, ...] = ()
    when: str = ""
    spread: str = ""
    delay: str = ""
    rate: str = ""
    dry: bool = False
    most: str = ""
    up_to: str = ""

    @classmethod
    def of(cls, form: QueryParams, redaction: Redaction) -> ActionRequest:
        """Read a form; raises InvalidInput."""
        act = form.get("act", "")
        if act not in KINDS:
            raise InvalidInput(f"unknown action {act!r}; expected one of {', '.join(KINDS)}")
        ids = tuple(dict.fromkeys(map(unquoted, form.getlist("ids"))))
        if len(ids) > MOST_IDS:
            raise InvalidField("ids", f"{len(ids)} messages are selected: select at most {MOST_IDS}")
        if not ids and form.get("all") != "1":
            raise InvalidField("ids", "no message is selected: select at least one")
        texts = {name: form.get(name, "").strip() for name in ("when", "spread", "delay", "rate", "most", "up_to")}
        wanted = MessageFilter.of(form, redaction)
        if not ids:
            check_act(act, wanted.state)
        page = form.get("page", "") if form.get("page") in PAGES else ""
        return cls(act=act, filter=wanted, page=page, ids=ids, dry=form.get("dry") == "1", **texts)

    @property
    def warning(self) -> str:
        """What to know before confirming it."""
        if self.act == "cancel" and self.filter.state == "dead":
            return "They are deleted for good."
        return KINDS[self.act].warning

    @property
    def verb(self) -> str:
        """The text of its button."""
        return verb_of(self.act, self.filter.state)

    @property
    def is_sweep(self) -> bool:
        """Whether it acts on all messages that match, and not on selected ones."""
        return not self.ids

    def title(self) -> str:
        """Return the title of the action."""
        if self.is_sweep:
            return f"{self.verb} all {self.filter.words()}{' (dry run)' if self.dry else ''}"
        many = "1 message" if len(self.ids) == 1 else f"{len(self.ids):,} messages"
        return f"{self.verb} {many}"

    def fields(self) -> list[tuple[str, str]]:
        """Return the fields that `of` reads, without those that the confirmation adds."""
        which = [("ids", quoted(each)) for each in self.ids] or [("all", "1")]
        return [("act", self.act), ("page", self.page), *which, *self.filter.fields().items()]

    def work(self, queue: Queue, now: dt.datetime) -> Work:
        """Return the work of the task; raises InvalidInput.

        Args:
            now: the server's clock; durations count from it.
        """
        if self.act == "purge":
            if self.ids or not self.filter.is_empty:
                raise InvalidInput("a purge deletes all messages of a state: cancel the ones that you mean instead")
            return jobs.purged(queue, self.filter.state, _whole(self.most), _whole(self.up_to))
        choice = self.filter.choice()
        if self.act == "requeue" and not self.ids:
            delay = self._delay()
            with field("rate"):
                redrive = Redrive(choice, delay, _rate(self.rate), self.dry)
            return jobs.redriven(queue, redrive, self.dry)
        if self.is_sweep and self.dry:
            return jobs.swept(queue, Sweep(self.filter.state, choice, None), None)
        act, due = self.doing(now)
        word = "deleted" if self.filter.state == "dead" else "cancelled"
        if self.ids:
            return jobs.selected(queue, act, self.ids, word)
        backwards = callable(due) or self.when.startswith("+")  # else it meets what it moved to later
        return jobs.swept(queue, Sweep(self.filter.state, choice, act, due, backwards), act, word)

    def doing(self, now: dt.datetime) -> tuple[Act, int | Due | None]:
        """Return the action on a message, and its new due time if a sweep may meet it again."""
        if self.act == "cancel":
            return cancelling, None
        if self.act == "bury":
            return burying, None
        if self.act == "requeue":
            return requeueing(due_word(self._delay(), None)), None
        if self.act == "reschedule":
            return self._rescheduling(now)
        return rescheduling(timestamp_ms(now)), timestamp_ms(now)

    def _rescheduling(self, now: dt.datetime) -> tuple[Act, int | Due | None]:
        with field("spread"):
            over_ms = milliseconds(parse_duration(self.spread), "spread") if self.spread else 0
        if self.when[:1] in ("+", "-"):
            if over_ms:
                raise InvalidField("spread", f"{self.spread!r} cannot be combined with a shift: give a new time")
            with field("when"):
                by_ms = milliseconds(parse_duration(self.when[1:]), "when")
            return retiming(shifted(-by_ms if self.when[0] == "-" else by_ms)), None
        start_ms = self._due(now)
        if not over_ms:
            return rescheduling(start_ms), start_ms
        due = spread(start_ms, over_ms)
        return retiming(due), due

    def _delay(self) -> float:
        with field("delay"):
            delay = parse_duration(self.delay) if self.delay else 0
            delay_ms(delay)  # checks it
        return delay

    def _due(self, now: dt.datetime) -> int:
        with field("when"):
            given = parse_age(self.when)
            at = given if isinstance(given, dt.datetime) else now + dt.timedelta(seconds=given)
            return timestamp_ms(at, "when")


def _whole(text: str) -> int:
    if not re.fullmatch(r"-?\d{1,16}", text, re.ASCII):
        raise InvalidInput("the form lacks the number of messages: reload its page")
    return int(text)


def _rate(text: str) -> float | str | None:
    if not text:
        return None
    return text if "/" in text else float(text) if text.replace(".", "", 1).isdecimal() else text
