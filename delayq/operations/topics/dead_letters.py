"""Dead letters of a group: records that nobody is handed any more, until they are brought back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from delayq.errors import InvalidInput
from delayq.model.outcome import error_text
from delayq.model.record import DeadRecord, Record, table, text_of
from delayq.model.validation import check_limit
from delayq.operations.topics.group_admin import consumers
from delayq.operations.topics.group_read import check_record, cut
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.operation import Operation, execute
from delayq.protocol.topic_commands import MAX_LOOKED_AFTER, MAX_RECORDS


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
        first = "-"
        while len(found) < count:
            limit = min(MAX_RECORDS, count - len(found))
            page = yield from execute(scripts.entries(first, "+", limit, stream=scripts.keys.buried(group)))
            found += [_dead_record(context.name, entry_id, fields or (), number) for entry_id, fields in page]
            if len(page) < limit:
                break
            first = f"({page[-1][0]}"
    if not found:
        yield from consumers(context, group)  # raises when there is no such group
    return found


def _dead_record(topic: str, entry_id: str, fields: Sequence[bytes], shard: int) -> DeadRecord:
    told = table(fields[:10])
    deliveries = int(told["deliveries"])
    record = Record(topic, text_of(told["of"]), fields[10:], deliveries, shard)
    errors = text_of(told["errors"]).splitlines()
    return DeadRecord(entry_id, record, text_of(told["consumer"]), deliveries, text_of(told["reason"]), errors)


def requeue(context: TopicContext, group: str, consumer: str, letters: Iterable[DeadRecord]) -> Operation[int]:
    """Bring dead letters back to the group's unacked list; return how many; those whose record is gone stay dead."""
    shards = yield from context.opened()
    back = 0
    listed = list(letters)
    for letter in listed:
        if not isinstance(letter, DeadRecord):
            raise InvalidInput(f"{letter!r} is no dead letter of this group: give them as dead() returned them")
    for number, scripts in enumerate(shards):
        ids = [each.id for each in listed if each.record.shard == number]
        for part in cut(ids, MAX_LOOKED_AFTER):
            back += sum((yield from execute(scripts.requeue_dead(group, consumer, part))))
    return back


REQUEUED = "delayq-requeued"
"""The consumer that holds dead letters which were brought back, until they are taken over."""
