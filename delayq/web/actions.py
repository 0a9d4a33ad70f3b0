"""An action on messages, as somebody asks for it: which action, on which messages, and with which settings."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.model.actions import ACTIONS, Action, Field, How, Words
from delayq.model.placement import State
from delayq.model.show import plural
from delayq.model.text import printable_id
from delayq.web import job_work, request_jobs
from delayq.web.background_jobs import BackgroundJob, Work
from delayq.web.filters import MessageFilter, quoted, unquoted
from delayq.web.forms import InvalidField, check_choice, check_selected, field
from delayq.web.redaction import Redaction
from delayq.web.request_context import who
from delayq.web.states import WORDS

MOST_IDS = 500
PAGES = ("dead", "message")


class ActionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An action on messages, as somebody asks for it.

    Attributes:
        page: where its form is: "dead", "message", or empty for the list.
        ids: the selected messages; empty if `filter` selects them.
        filter: which messages to act on, and in which state.
        how: its settings; those of a form are read once they are confirmed.
        dry: whether to count only.
        most: to purge: the number of messages that were counted.
        up_to: to purge: the highest score of these, ms.
        typed: what its form shows again, by the names of its fields.
    """

    action: Action
    filter: MessageFilter
    page: str = ""
    ids: tuple[str, ...] = ()
    how: How = How()
    dry: bool = False
    most: int = 0
    up_to: int = 0
    typed: Mapping[str, str] = {}

    @classmethod
    def of(cls, form: QueryParams, redaction: Redaction) -> ActionRequest:
        """Read a form that is not confirmed yet; raises InvalidInput."""
        act = form.get("act", "")
        check_choice("action", act, ACTIONS)
        ids = tuple(dict.fromkeys(map(unquoted, form.getlist("ids"))))
        check_selected(ids, "message", MOST_IDS, form.get("all") == "1")
        asked = cls(
            action=ACTIONS[act],
            filter=MessageFilter.of(form, redaction),
            page=form.get("page", "") if form.get("page") in PAGES else "",
            ids=ids,
            dry=form.get("dry") == "1",
            typed={each.name: form.get(each.name, "").strip() for each in ACTIONS[act].fields},
        )
        if asked.is_sweep:
            check_state(asked.action, asked.filter.state)
        return asked

    @classmethod
    def confirmed(cls, form: QueryParams, redaction: Redaction) -> ActionRequest:
        """Read a form with the settings of its confirmation; raises InvalidInput."""
        asked = cls.of(form, redaction)
        if not asked.action.takes_ids:
            if asked.ids or not asked.filter.is_empty:
                raise InvalidInput("a purge deletes all messages of a state: cancel the ones that you mean instead")
            return msgspec.structs.replace(asked, most=_whole(form, "most"), up_to=_whole(form, "up_to"))
        if asked.dry and asked.is_sweep and any(each.is_required for each in asked.settings):  # only counts them
            return asked
        return msgspec.structs.replace(asked, how=_how(asked))

    @property
    def words(self) -> Words:
        """What the action is called for these messages."""
        return self.action.words_for(self.filter.state)

    @property
    def is_sweep(self) -> bool:
        """Whether it acts on all messages that match, and not on selected ones."""
        return not self.ids

    @property
    def settings(self) -> list[Field]:
        """The settings of the action for these messages."""
        return [each for each in self.action.fields if self.is_sweep or not each.of_matching]

    def title(self) -> str:
        """Return the title of the action."""
        if self.is_sweep:
            return f"{self.words.verb} all {self.filter.words()}{' (dry run)' if self.dry else ''}"
        return f"{self.words.verb} {plural(len(self.ids), 'message')}"

    def fields(self) -> list[tuple[str, str]]:
        """Return the fields that `of` reads, without those that the confirmation adds."""
        which = [("ids", quoted(each)) for each in self.ids] or [("all", "1")]
        return [("act", self.action.name), ("page", self.page), *which, *self.filter.fields().items()]

    def work(self, queue: Queue, now: dt.datetime) -> Work:
        """Return the work of the job; raises InvalidInput.

        Args:
            now: the server's clock; durations count from it.
        """
        state = self.filter.state
        if not self.action.takes_ids:
            return job_work.purged(queue, state, self.most, self.up_to)
        choice = self.filter.choice()
        if self.action.name == "requeue" and self.is_sweep:
            return job_work.redriven(queue, choice, self.how, self.dry)
        if self.ids:
            return job_work.selected(queue, self.ids, self.action, self.how, now, state)
        return job_work.swept(queue, state, choice, None if self.dry else self.action, self.how, now)


def check_state(action: Action, state: State) -> None:
    """Raise InvalidInput if an action does not apply to messages in a state."""
    if state not in action.states:
        raise InvalidInput(f"{action.words_for(state).verb} is not possible for {WORDS[state]} messages")


def start(request: Request, queue: str, asked: ActionRequest, work: Work, once: str) -> BackgroundJob:
    """Start a job for the action, with audit lines at its start and end."""
    alone = asked.is_sweep and not asked.dry
    job = BackgroundJob(request.path_params["server"], queue, asked.title(), who(request), alone)
    if asked.dry:
        job.again = dict(asked.fields()) | {each.name: asked.typed.get(each.name, "") for each in asked.settings}
    about: dict[str, object] = {"ids": [*map(printable_id, asked.ids)]} if asked.ids else {"all": asked.filter.words()}
    return request_jobs.start(request, job, work, once, asked.action.audited, about, is_announced=asked.is_sweep)


def _how(asked: ActionRequest) -> How:
    """Read the settings that its form has; raises InvalidInput."""
    found: dict[str, Any] = {}
    for each in asked.settings:
        with field(each.name):
            found |= each.read(asked.typed[each.name])
    if "shift" in found and found["spread"]:
        raise InvalidField("spread", f"{asked.typed['spread']!r} cannot be combined with a shift: give a new time")
    return How(**found)


def _whole(form: QueryParams, name: str) -> int:
    text = form.get(name, "").strip()
    if not re.fullmatch(r"-?\d{1,16}", text, re.ASCII):
        raise InvalidInput("the form lacks the number of messages: reload its page")
    return int(text)
