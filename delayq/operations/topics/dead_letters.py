"""Dead letters of a group: records that nobody is handed any more, until they are brought back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from delayq.errors import InvalidInput
from delayq.model.outcome import error_text
from delayq.model.record import DeadRecord, Record, table, text_of
from delayq.model.validation import check_limit
from delayq.operations.topics.group_admin import consumers
from delayq.operations.topics.group_read import check_record
from delayq.operations.topics.read import pages
from delayq.operations.topics.topic_context import TopicContext, cut
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.topic_commands import MAX_LOOKED_AFTER, MAX_RECORDS, Entry, TopicCommands


def dead_letter(
    context: TopicContext, group: str, consumer: str, record: Record, reason: str, error: object
) -> Operation[bool]:
    """Let a record that a consumer holds become a dead letter; return whether it did."""
    shards = yield from context.opened()
    check_record(context, record)
    said = one_line(error) if error is not None else ""
    return bool((yield from execute(shards[record.shard].dead_letter(group, consumer, record.id, reason, said))))


def one_line(error: object) -> str:
    """Return what an error says as one line, with its end."""
    return " ".join(error_text(error).split()) + "\n"


def dead(context: TopicContext, group: str, count: int) -> Operation[list[DeadRecord]]:
    """List up to `count` dead letters of a group, the longest dead first; raises UnknownGroup."""
    check_limit(count, "count")
    found: list[DeadRecord] = []
    for number, scripts in enumerate((yield from context.opened())):
        read = partial(_dead_records, context.name, number)
        found += yield from pages(scripts, "-", "+", count - len(found), read, stream=scripts.keys.buried(group))
    if not found:
        yield from consumers(context, group)  # raises when there is no such group
    return found


def _dead_records(topic: str, shard: int, entries: Sequence[Entry]) -> list[DeadRecord]:
    return [_dead_record(topic, entry_id, fields or (), shard) for entry_id, fields in entries]


def _dead_record(topic: str, entry_id: str, fields: Sequence[bytes], shard: int) -> DeadRecord:
    told = table(fields[:10])
    deliveries = int(told["deliveries"])
    record = Record(topic, text_of(told["of"]), fields[10:], deliveries, shard)
    errors = text_of(told["errors"]).splitlines()
    return DeadRecord(entry_id, record, text_of(told["consumer"]), deliveries, text_of(told["reason"]), errors)


def requeue(context: TopicContext, group: str, consumer: str, letters: Iterable[DeadRecord]) -> Operation[int]:
    """Let a group handle dead letters once more; return how many there were."""
    back = 0
    for scripts, ids in (yield from _by_shard(context, letters)):
        done = 0
        while done < len(ids):  # of large ones, a call takes a part
            results = yield from execute(scripts.requeue_dead(group, consumer, ids[done : done + MAX_LOOKED_AFTER]))
            back += sum(results)
            done += len(results)
    return back


def delete(context: TopicContext, group: str, letters: Iterable[DeadRecord]) -> Operation[int]:
    """Delete dead letters of a group; return how many there were."""
    gone = 0
    for scripts, ids in (yield from _by_shard(context, letters)):
        for part in cut(ids, MAX_RECORDS):
            gone += yield from execute(scripts.delete_dead(group, part))
    return gone


def count(context: TopicContext, group: str) -> Operation[int]:
    """Count the dead letters of a group."""
    shards = yield from context.opened()
    return sum(map(unwrap, (yield [scripts.dead_length(group) for scripts in shards])))


def _by_shard(
    context: TopicContext, letters: Iterable[DeadRecord]
) -> Operation[list[tuple[TopicCommands, Sequence[str]]]]:
    listed = list(letters)
    for letter in listed:
        if not isinstance(letter, DeadRecord):
            raise InvalidInput(f"{letter!r} is no dead letter of this group: give them as dead() returned them")
    shards = yield from context.opened()
    return [
        (scripts, [each.id for each in listed if each.record.shard == number]) for number, scripts in enumerate(shards)
    ]


REQUEUED = "delayq-requeued"
"""The consumer that holds dead letters which were brought back, until they are taken over."""
