"""Dead letters of a group: records that are not delivered until they are requeued."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from delayq.errors import InvalidInput
from delayq.model.outcome import error_text
from delayq.model.positions import Place, order
from delayq.model.record import DeadPage, DeadRecord, Entry, Record, table, text_of
from delayq.model.text import decode_count
from delayq.model.validation import check_group_name, check_limit
from delayq.operations.topics.group_admin import consumers
from delayq.operations.topics.group_read import check_record
from delayq.operations.topics.read import pages
from delayq.operations.topics.topic_context import TopicContext, cut
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.topic_commands import MAX_LOOKED_AFTER, MAX_RECORDS, REQUEUED, TopicCommands

_FIELDS = ("of", "consumer", "deliveries", "reason", "errors")


def dead_letter(
    context: TopicContext, group: str, consumer: str, record: Record, reason: str, error: object
) -> Operation[bool]:
    """Make a record that a consumer holds a dead letter; return whether it became one."""
    check_group_name(consumer, "consumer name")
    shards = yield from context.opened()
    check_record(context, record)
    said = one_line(error) if error is not None else ""
    words = (group, consumer, record.entry_id, reason, said, record.group_mark)
    return bool((yield from execute(shards[record.shard].dead_letter(*words))))


def one_line(error: object) -> str:
    """Return an error as one line, keeping its end if it is cut."""
    return " ".join(error_text(error).split()) + "\n"


def dead(context: TopicContext, group: str, count: int) -> Operation[list[DeadRecord]]:
    """List up to `count` dead letters of a group, the longest dead first; raises UnknownGroup."""
    check_limit(count, "count")
    found: list[DeadRecord] = []
    for number, scripts in enumerate((yield from context.opened())):
        read = partial(_dead_records, context.name, number)
        found += yield from pages(scripts, "-", "+", count - len(found), read, stream=scripts.keys.buried(group))
    if not found:
        yield from consumers(context, group)  # raises if there is no such group
    return found


def page(context: TopicContext, group: str, after: Place | None, count: int) -> Operation[DeadPage]:
    """Read a page of a group's dead letters, shard by shard: up to `count` (1 to 499), fewer when these are large."""
    check_limit(count, "count", most=MAX_RECORDS - 1)
    shards = yield from context.opened()
    letters: list[DeadRecord] = []
    for number in range(after.shard if after else 0, len(shards)):
        first = f"({after.id}" if after and number == after.shard else "-"
        stream = shards[number].keys.buried(group)
        entries, is_cut = yield from execute(shards[number].range(first, "+", count + 1 - len(letters), stream=stream))
        letters += _dead_records(context.name, number, entries)
        if len(letters) > count or (is_cut and letters):
            letters = letters[:count]
            return DeadPage(letters, letters[-1].place)
    return DeadPage(letters, None)


def get(context: TopicContext, group: str, place: Place) -> Operation[DeadRecord | None]:
    """Read one dead letter of a group; None if it does not exist."""
    shards = yield from context.opened()
    if place.shard >= len(shards):
        return None
    scripts = shards[place.shard]
    entries, _ = yield from execute(scripts.range(place.id, place.id, 1, stream=scripts.keys.buried(group)))
    return next(iter(_dead_records(context.name, place.shard, entries)), None)


def place_of(letter: DeadRecord | Place) -> Place:
    """Return where a dead letter is; raises InvalidInput for anything else."""
    if not isinstance(letter, DeadRecord | Place):
        raise InvalidInput(f"{letter!r} is not a dead letter of this group: give those that dead() returned")
    return letter.place if isinstance(letter, DeadRecord) else letter


def _dead_records(topic: str, shard: int, entries: Sequence[Entry]) -> list[DeadRecord]:
    return [_dead_record(topic, entry_id, fields or (), shard) for entry_id, fields in entries]


def _dead_record(topic: str, entry_id: str, fields: Sequence[bytes], shard: int) -> DeadRecord:
    reasons = dict.fromkeys(_FIELDS, b"") | table(fields[:10])  # another program may have appended it
    deliveries = decode_count(reasons["deliveries"])
    record = Record(topic, text_of(reasons["of"]), fields[10:], deliveries, shard)
    errors = text_of(reasons["errors"]).splitlines()
    return DeadRecord(entry_id, record, text_of(reasons["consumer"]), deliveries, text_of(reasons["reason"]), errors)


def requeue(context: TopicContext, group: str, consumer: str, places: Iterable[Place]) -> Operation[int]:
    """Requeue dead letters, so that the group handles them again; return how many there were."""
    back = 0
    for scripts, ids in (yield from _by_shard(context, places)):
        done = 0
        while done < len(ids):  # a call takes only some of them if they are large
            results = yield from execute(scripts.requeue_dead(group, consumer, ids[done : done + MAX_LOOKED_AFTER]))
            back += sum(results)
            done += len(results)
    return back


def delete(context: TopicContext, group: str, places: Iterable[Place]) -> Operation[int]:
    """Delete dead letters of a group; return how many there were."""
    gone = 0
    for scripts, ids in (yield from _by_shard(context, places)):
        for part in cut(ids, MAX_RECORDS):
            gone += yield from execute(scripts.delete_dead(group, part))
    return gone


def count(context: TopicContext, group: str) -> Operation[int]:
    """Count the dead letters of a group."""
    shards = yield from context.opened()
    return sum(map(unwrap, (yield [scripts.dead_length(group) for scripts in shards])))


def last_ms(context: TopicContext, group: str) -> Operation[int]:
    """Return when the last dead letter of a group died, ms; 0 if there is none."""
    shards = yield from context.opened()
    pages = yield [scripts.range("-", "+", 1, True, scripts.keys.buried(group)) for scripts in shards]
    return max((order(entry_id)[0] for page in map(unwrap, pages) for entry_id, _ in page.entries), default=0)


class DeadSweep:
    """Requeues or deletes all dead letters of a group that died by a given moment, one call a step.

    Args:
        until_ms: dead letters that die later stay, even if this sweep requeued them before.

    Attributes:
        count: how many it has requeued or deleted.
        done: whether there is nothing left to do.
    """

    def __init__(self, group: str, until_ms: int, deletes: bool) -> None:
        self.count = 0
        self.done = False
        self._group = group
        self._until_ms = until_ms
        self._step = self._delete if deletes else self._requeue
        self._shard = 0

    def step(self, context: TopicContext) -> Operation[int]:
        """Requeue or delete some of them; return the total so far."""
        shards = yield from context.opened()
        done, more = yield from self._step(shards[self._shard])
        self.count += done
        self._shard += not more
        self.done = self._shard >= len(shards)
        return self.count

    def _requeue(self, scripts: TopicCommands) -> Operation[tuple[int, bool]]:
        stream = scripts.keys.buried(self._group)
        entries, _ = yield from execute(scripts.range("-", str(self._until_ms), MAX_LOOKED_AFTER, stream=stream))
        if not entries:
            return 0, False
        ids = [entry_id for entry_id, _ in entries]
        return sum((yield from execute(scripts.requeue_dead(self._group, REQUEUED, ids)))), True

    def _delete(self, scripts: TopicCommands) -> Operation[tuple[int, bool]]:
        dropped, more = yield from execute(scripts.trim("MINID", self._until_ms + 1, exact=True, dead_of=self._group))
        return dropped, bool(more)


def _by_shard(context: TopicContext, places: Iterable[Place]) -> Operation[list[tuple[TopicCommands, Sequence[str]]]]:
    listed = list(places)
    shards = yield from context.opened()
    return [(scripts, [each.id for each in listed if each.shard == number]) for number, scripts in enumerate(shards)]
