"""The changes of a group: moving and destroying it, claiming its records, and its dead letters."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starlette.datastructures import QueryParams

from delayq.errors import InvalidInput
from delayq.model.actions import DEAD_ACTIONS, GROUP_ACTIONS, Action
from delayq.model.positions import Place, Position, beginning
from delayq.model.show import plural
from delayq.model.units import parse_duration
from delayq.model.validation import check_group_name
from delayq.operations.topics import dead_letters, group_admin, read
from delayq.web import groups
from delayq.web.background_jobs import BackgroundJob
from delayq.web.changes import GROUP, Foreseen, GroupChange, JobChange
from delayq.web.forms import check_choice, check_selected, field, past_time
from delayq.web.groups import check_known, group_info, known, missing
from delayq.web.record_keys import MOST_KEYS, key_of, place_of

MOST_NAMED = 10  # as in confirm.html

BEGINNINGS: Final = {
    "end": "records published from now on",
    "start": "the first record",
    "id": "the record after an id",
    "time": "records published since a time",
}
"""The choices of the form."""

_ENDS = {"end": "$", "start": "0"}


class Beginning(NamedTuple):
    """Where a group starts.

    Attributes:
        where: a key of BEGINNINGS.
        text: the id, or the time.
        position: the library's form of it.
    """

    where: str
    text: str
    position: Position

    @classmethod
    def of(cls, form: Mapping[str, str], now: dt.datetime) -> Beginning:
        """Read a form; raises InvalidInput.

        Args:
            now: the server's clock; a length of time is subtracted from it.
        """
        where, text = form.get("where", ""), form.get("position", "").strip()
        check_choice("position", where, BEGINNINGS)
        if where in _ENDS:
            return cls(where, "", _ENDS[where])
        with field("position"):
            if where == "id":
                beginning(text, "position")
                return cls(where, text, text)
            at = past_time(text, now)
            return cls(where, at.isoformat(), at)

    def words(self) -> str:
        """Say it."""
        words = BEGINNINGS[self.where]
        if isinstance(self.position, dt.datetime):
            return words.replace("a time", f"{self.position.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC")
        return words.replace("an id", self.text)


class Move(GroupChange):
    """Move it to another position."""

    action = GROUP_ACTIONS["move"]
    at: Beginning

    async def read(self, form: QueryParams) -> None:
        self.at = Beginning.of(form, await self.topic.execute(read.server_time))
        self.about["position"] = str(self.at.position)

    def fields(self) -> list[tuple[str, str]]:
        return [("where", self.at.where), ("position", self.at.text)]

    async def sentences(self) -> list[str]:
        with known(self.group):
            move = await self.topic.execute(group_admin.foresee_move, self.group.name, self.at.position)
        return [f"It continues from {self.at.words()}.", *_effects(move), self.action.words.warning]

    async def act(self) -> str:
        await self.group.set_position(self.at.position)
        return f"The group continues from {self.at.words()}."


def _effects(move: group_admin.Move) -> list[str]:
    least = "at least " if move.at_least else ""
    effects = []
    if move.again:
        effects.append(f"It receives {least}{plural(move.again, 'record')} again, acked or not.")
    if move.skipped:
        effects.append(f"It skips {least}{plural(move.skipped, 'record')} that it has not received yet.")
    return effects or ["It is already there: it neither skips records nor receives any again."]


class Destroy(GroupChange):
    """Destroy it, with its unacked list and dead letters."""

    action = GROUP_ACTIONS["destroy"]
    next_page = "topic"

    async def sentences(self) -> list[str]:
        info = await group_info(self.group)
        unacked, dead = plural(info.unacked, "unacked record"), plural(info.dead, "dead letter")
        return [f"Deletes its position, {unacked} and {dead} permanently.", self.action.words.warning]

    async def act(self) -> str:
        if not await self.group.destroy():
            raise missing(self.topic.name, self.group.name)
        return f"{self.action.words.became.capitalize()} group {self.group.name}."


class Claim(GroupChange):
    """Claim records for a consumer that others have not acked for some time. It needs no confirmation."""

    action = GROUP_ACTIONS["claim"]
    has_result = True
    consumer: str
    idle: float

    async def read(self, form: QueryParams) -> None:
        with field("consumer"):
            self.consumer = check_group_name(form.get("consumer", "").strip(), "consumer name")
            if form.get("new") != "1":
                await check_known(self.group, self.consumer)
        with field("idle"):
            self.idle = parse_duration(form.get("idle", ""))
        self.about["consumer"] = self.consumer

    async def act(self) -> str:
        done = await groups.claim(self.topic, self.group.name, self.consumer, self.idle)
        ghosts = f" Trimmed records removed from the list: {done.ghosts:,}." if done.ghosts else ""
        if not done.records:
            return f"No record has been unacked for that long.{ghosts}"
        claimed = f"{self.action.words.became.capitalize()} {plural(len(done.records), 'record')}"
        return f"{claimed} for {self.consumer}, which receives them when it reads its unacked records.{ghosts}"


class DeadLetters(JobChange, GroupChange):
    """Requeue or delete its dead letters.

    Attributes:
        places: the selected dead letters; empty for all.
        until_ms: for all: those that died until then, ms; as of the confirmation.
        total: the number of its dead letters.
    """

    path = f"{GROUP}/dead"
    page = "dead_records"
    places: Sequence[Place]
    until_ms = 0
    total: int

    async def read(self, form: QueryParams) -> None:
        act, places = form.get("act", ""), [*dict.fromkeys(map(place_of, form.getlist("ids")))]
        check_choice("action", act, DEAD_ACTIONS)
        check_selected(places, "dead letter", MOST_KEYS, form.get("all") == "1")
        until = form.get("until", "0")
        if not (until.isdecimal() and len(until) < 16):  # milliseconds
            raise InvalidInput(f"{until!r} is not a time of death: reload the page")
        await self.select(DEAD_ACTIONS[act], places)
        self.until_ms = int(until) or self.until_ms

    async def select(self, action: Action, places: Sequence[Place] = ()) -> None:
        """Set the action and the dead letters; without places, all that the group has now."""
        self.action, self.places, self.is_all = action, places, not places
        self.about |= {"all": "dead"} if self.is_all else {"ids": [*map(key_of, places)]}
        self.total = (await group_info(self.group)).dead
        if self.is_all:
            self.until_ms = await self.topic.execute(dead_letters.last_ms, self.group.name)

    def check(self, form: Mapping[str, str]) -> None:
        if self.is_all and not int(form.get("until", "0")):
            raise InvalidInput("the form lacks the time of its confirmation: confirm it again")
        super().check(form)

    def fields(self) -> list[tuple[str, str]]:
        which = [("ids", key_of(each)) for each in self.places] or [("all", "1")]
        return [("act", self.action.name), *which, ("until", str(self.until_ms))]

    def title(self) -> str:
        many = "all dead letters" if self.is_all else plural(len(self.places), "dead letter")
        return f"{self.action.words.verb} {many}"

    async def foresee(self) -> Foreseen:
        count, selection = len(self.places), f"{len(self.places):,} selected."
        if self.is_all:
            if not self.total:
                raise InvalidInput(f"group {self.group.name} has no dead letters")
            count, selection = self.total, f"{plural(self.total, 'dead letter')}. Records that die later stay."
        return Foreseen(
            self.title(),
            f"of group {self.group.name} of topic {self.topic.name}",
            [selection, self.action.words.warning],
            f"{self.action.words.verb} {plural(count, 'dead letter')}",
            await self._record_ids(),
        )

    async def _record_ids(self) -> list[str]:
        """Return the ids of records as the list shows them: as many as a confirmation names."""
        letters = [await self.group.get_dead(each) for each in self.places[:MOST_NAMED]]
        named = [each.record.id for each in letters if each]
        return named + [key_of(each) for each in self.places[len(named) :]]

    async def work(self, job: BackgroundJob) -> None:
        became, deletes = self.action.words.became, self.action is DEAD_ACTIONS["delete"]
        if self.is_all:
            sweep = dead_letters.DeadSweep(self.group.name, self.until_ms, deletes)
            while not sweep.done and job.goes_on:
                done = await self.topic.execute(sweep.step)
                job.tell(done, max(self.total, done), f"{done:,} {became}.", done=done)
                await job.rest(0)
            return
        done, of = await (self.group.delete_dead if deletes else self.group.requeue_dead)(self.places), len(self.places)
        some = f"{done:,} of {of:,} {became}.", "The others have left the dead letters."
        job.tell(of, of, *((f"{done:,} {became}.",) if done == of else some), done=done)


BUTTONS: tuple[type[GroupChange], ...] = (Destroy,)
"""The changes whose form is a button alone, in the order of the buttons."""
