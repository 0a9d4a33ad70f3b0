"""Dead letters of a group: records that nobody is handed any more, until they are brought back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from delayq.calls import Steps, one
from delayq.errors import InvalidInput
from delayq.operations.inspecting import check_limit
from delayq.outcome import error_text
from delayq.topics.core import TopicCore
from delayq.topics.grouping import check_record, consumers, cut
from delayq.topics.record import DeadRecord, Record, table, text_of
from delayq.topics.scripts import MAX_LOOKED_AFTER, MAX_RECORDS


def bury(core: TopicCore, group: str, consumer: str, record: Record, reason: str, error: object) -> Steps[bool]:
    """Let a record that a consumer holds become a dead letter; return whether it did."""
    shards = yield from core.opened()
    check_record(core, record)
    said = one_line(error) if error is not None else ""
    return bool((yield from one(shards[record.shard].bury(group, consumer, record.id, reason, said))))


def one_line(error: object) -> str:
    """Return what an error says as one line, with its end."""
    return " ".join(error_text(error).split()) + "\n"


def dead(core: TopicCore, group: str, count: int) -> Steps[list[DeadRecord]]:
    """List up to `count` dead letters of a group, the longest dead first; raises UnknownGroup."""
    check_limit(count, "count")
    found: list[DeadRecord] = []
    for number, scripts in enumerate((yield from core.opened())):
        first = "-"
        while len(found) < count:
            limit = min(MAX_RECORDS, count - len(found))
            page = yield from one(scripts.entries(first, "+", limit, stream=scripts.keys.buried(group)))
            found += [_dead_record(core.name, entry_id, fields or (), number) for entry_id, fields in page]
            if len(page) < limit:
                break
            first = f"({page[-1][0]}"
    if not found:
        yield from consumers(core, group)  # raises when there is no such group
    return found


def _dead_record(topic: str, entry_id: str, fields: Sequence[bytes], shard: int) -> DeadRecord:
    told = table(fields[:10])
    deliveries = int(told["deliveries"])
    record = Record(topic, text_of(told["of"]), fields[10:], deliveries, shard)
    errors = text_of(told["errors"]).splitlines()
    return DeadRecord(entry_id, record, text_of(told["consumer"]), deliveries, text_of(told["reason"]), errors)


def revive(core: TopicCore, group: str, consumer: str, letters: Iterable[DeadRecord]) -> Steps[int]:
    """Bring dead letters back to the group's unacked list; return how many; those whose record is gone stay dead."""
    shards = yield from core.opened()
    back = 0
    listed = list(letters)
    for letter in listed:
        if not isinstance(letter, DeadRecord):
            raise InvalidInput(f"{letter!r} is no dead letter of this group: give them as dead() returned them")
    for number, scripts in enumerate(shards):
        ids = [each.id for each in listed if each.record.shard == number]
        for part in cut(ids, MAX_LOOKED_AFTER):
            back += sum((yield from one(scripts.revive(group, consumer, part))))
    return back
