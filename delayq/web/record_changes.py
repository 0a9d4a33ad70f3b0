"""The changes of a topic's records: deleting selected ones, and trimming by length or age."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from starlette.datastructures import QueryParams

from delayq.aio import Topic
from delayq.errors import InvalidInput
from delayq.model.actions import RECORD_ACTIONS
from delayq.model.health import lag_text
from delayq.model.positions import Place
from delayq.model.record import GroupInfo, Record, TrimPlan
from delayq.model.show import plural
from delayq.model.units import from_ms, timestamp_ms
from delayq.operations.topics import read, trim
from delayq.web.background_jobs import BackgroundJob
from delayq.web.changes import Change, Foreseen, JobChange
from delayq.web.forms import InvalidField, check_choice, check_selected, field, past_time
from delayq.web.record_keys import MOST_KEYS, key_of, place_of

MOST_NAMED = 20  # groups


class DeleteRecords(Change):
    """Delete selected records."""

    action = RECORD_ACTIONS["delete"]
    has_result = True
    places: Sequence[Place]

    async def read(self, form: QueryParams) -> None:
        self.places = [*dict.fromkeys(map(place_of, form.getlist("ids")))]
        check_selected(self.places, "record", MOST_KEYS)
        self.about["ids"] = [*map(key_of, self.places)]

    def fields(self) -> list[tuple[str, str]]:
        return [("ids", key_of(each)) for each in self.places]

    async def foresee(self) -> Foreseen:
        title = f"{self.action.words.verb} {plural(len(self.places), 'record')}"
        ids = [each.id for each in self.places]
        return Foreseen(title, f"of topic {self.topic.name}", [self.action.words.warning], title, ids)

    async def act(self) -> str:
        done, of = await delete(self.topic, self.places), len(self.places)
        some = f"Deleted {done:,} of {of:,} records; the others were already gone."
        return f"Deleted {plural(of, 'record')}." if done == of else some


async def delete(topic: Topic, places: Sequence[Place]) -> int:
    """Delete the records at these places; return how many there were."""
    return await topic.delete([Record(topic.name, each.id, (), 0, each.shard) for each in places])


class Trim(JobChange):
    """Delete the oldest records."""

    action = RECORD_ACTIONS["trim"]
    plan: TrimPlan

    async def read(self, form: QueryParams) -> None:
        self.keep(_plan(form, await self.topic.execute(read.server_time)))

    def keep(self, plan: TrimPlan) -> None:
        """Set what to keep."""
        self.plan, self.about["to"] = plan, _kept(plan)

    def fields(self) -> list[tuple[str, str]]:
        if self.plan.length is not None:
            return [("how", "length"), ("keep", str(self.plan.length))]
        return [("how", "age"), ("keep", from_ms(self.plan.since_ms or 0).isoformat())]

    async def foresee(self) -> Foreseen:
        count, at_least = await self.topic.execute(trim.foresee, self.plan)
        if not count:
            raise InvalidField("keep", f"no record would be deleted: topic {self.topic.name} keeps {_kept(self.plan)}")
        behind = [each for each in await self.topic.groups(quick=True) if each.lag or each.unacked]
        many = f"{'at least ' * at_least}{plural(count, 'record')}"
        sentences = [f"Deletes {many}, acked or not.", *map(_needs, behind[:MOST_NAMED])]
        return Foreseen(f"Trim {self.topic.name}", f"to {_kept(self.plan)}", sentences, f"Delete {many}")

    def title(self) -> str:
        return f"Trim to {_kept(self.plan)}"

    async def work(self, job: BackgroundJob) -> None:
        sweep = trim.TrimSweep(self.plan)
        while not sweep.done and job.goes_on:
            done = await self.topic.execute(sweep.step)
            job.tell(done, None, f"Deleted {plural(done, 'record')}.", done=done)
            await job.rest(0)


def _plan(form: Mapping[str, str], now: dt.datetime) -> TrimPlan:
    """Read which records to keep from a form; raises InvalidInput."""
    how, text = form.get("how", ""), form.get("keep", "").strip()
    check_choice("way to trim", how, ("length", "age"))
    with field("keep"):
        if how == "age":
            return TrimPlan(since_ms=timestamp_ms(past_time(text, now)))
        if not (text.isascii() and text.isdecimal() and len(text) < 16):
            raise InvalidInput(f"{text!r} is not a number of records, 0 or more")
        return TrimPlan(length=int(text))


def _kept(plan: TrimPlan) -> str:
    if plan.length is not None:
        return f"the newest {plan.length:,} (per shard)"
    return f"records published since {from_ms(plan.since_ms or 0):%Y-%m-%d %H:%M:%S} UTC"


def _needs(group: GroupInfo) -> str:
    lag = lag_text([group])
    return f"Group {group.name} has not received {lag} of the records yet, and has {group.unacked:,} unacked."
