"""An action on the dead letters of a group, as somebody asks for it: requeue or delete, and which ones."""

from __future__ import annotations

from typing import NamedTuple

from starlette.datastructures import QueryParams
from starlette.requests import Request

from delayq.aio import Topic
from delayq.errors import InvalidInput
from delayq.model.positions import Place
from delayq.model.show import plural
from delayq.operations.topics import dead_letters
from delayq.web import audit
from delayq.web.background_tasks import BackgroundTask, Work
from delayq.web.forms import InvalidField
from delayq.web.record_keys import key_of, place_of
from delayq.web.request_context import who
from delayq.web.request_tasks import begin

MOST_IDS = 100

WARNINGS = {
    "requeue": (
        "They become unacked records again, which a consumer of the group takes over, and their deliveries count from "
        "zero. A trimmed record is appended to the topic again, for this group only."
    ),
    "delete": "They are deleted for good. The topic keeps its records.",
}
"""The actions on dead letters, and what to know before each."""


class DeadRecordsRequest(NamedTuple):
    """An action on dead letters, as sent by a form.

    Attributes:
        act: a key of WARNINGS.
        places: the selected dead letters; empty for all.
        until_ms: for all: those that died until then, ms; 0 before the confirmation.
    """

    act: str
    places: tuple[Place, ...]
    until_ms: int = 0

    @classmethod
    def of(cls, form: QueryParams) -> DeadRecordsRequest:
        """Read a form; raises InvalidInput."""
        act = form.get("act", "")
        if act not in WARNINGS:
            raise InvalidInput(f"unknown action {act!r}; expected one of {', '.join(WARNINGS)}")
        places = tuple(dict.fromkeys(map(place_of, form.getlist("ids"))))
        if len(places) > MOST_IDS:
            raise InvalidField("ids", f"{len(places)} dead letters are selected: select at most {MOST_IDS}")
        if not places and form.get("all") != "1":
            raise InvalidField("ids", "no dead letter is selected: select at least one")
        until = form.get("until", "0")
        if not (until.isdecimal() and len(until) < 16):  # milliseconds
            raise InvalidInput(f"{until!r} is not a time of death: reload the page")
        return cls(act, places, int(until))

    @classmethod
    async def of_all(cls, topic: Topic, group: str, act: str) -> DeadRecordsRequest:
        """Return the action on all dead letters that a group has now."""
        return cls(act, (), await topic.execute(dead_letters.last_ms, group))

    def which(self) -> list[tuple[str, str]]:
        """Return the form fields that select the dead letters."""
        return [("ids", key_of(each)) for each in self.places] or [("all", "1")]

    def title(self) -> str:
        """Return the title of the action."""
        verb = self.act.capitalize()
        if not self.places:
            return f"{verb} all dead letters"
        return f"{verb} {plural(len(self.places), 'dead letter')}"

    def work(self, topic: Topic, group: str, total: int) -> Work:
        """Return the work of the task."""
        became = "deleted" if self.act == "delete" else "requeued"

        async def ticked(task: BackgroundTask) -> None:
            of = await topic.group(group, create=False)
            done = await (of.delete_dead if self.act == "delete" else of.requeue_dead)(self.places)
            is_all = done == len(self.places)
            result = f"{done:,} {became}." if is_all else f"{done:,} of {len(self.places):,} {became}."
            gone = "" if is_all else "The others are no longer dead."
            task.tell(len(self.places), len(self.places), result, gone, done=done)

        async def all_(task: BackgroundTask) -> None:
            sweep = dead_letters.DeadSweep(group, self.until_ms, self.act == "delete")
            while not sweep.done and task.goes_on:
                done = await topic.execute(sweep.step)
                task.tell(done, max(total, done), f"{done:,} {became}.", done=done)
                await task.rest(0)

        return ticked if self.places else all_


def start(request: Request, topic: Topic, asked: DeadRecordsRequest, total: int, once: str) -> BackgroundTask:
    """Start a task for the action, with audit lines at its start and end.

    Args:
        total: the number of the group's dead letters.
    """
    server, group, is_all = request.path_params["server"], request.path_params["group"], not asked.places
    task = BackgroundTask(server, "", asked.title(), who(request), is_all, topic.name, group)
    which: dict[str, object] = {"all": "dead"} if is_all else {"ids": [*map(key_of, asked.places)]}
    line = {"who": task.who, "action": f"{asked.act} dead", "server": server, "task": task.id} | task.about() | which
    begin(request, task, asked.work(topic, group, total), once, line)
    if is_all:
        audit.note(request, line | {"outcome": "began"})
    return task
