"""Records of a ledger: one for each event, also where an entry holds several."""

from __future__ import annotations

from collections.abc import Iterable

from delayq.model.packed_events import parts
from delayq.model.record import PackedEntry, Record
from delayq.operations.topics.topic_context import TopicContext


def events_of(record: Record) -> list[Record]:
    """Return the events of a record as records that share its deliveries, and are acked together."""
    several = parts(record.id, record.fields)
    if len(several) == 1:
        return [record]
    packed = PackedEntry(record.id, {event for event, _ in several})
    return [
        Record(record.topic, event, fields or (), record.deliveries, record.shard, record.group_mark, packed)
        for event, fields in several
    ]


def each_event(context: TopicContext, records: Iterable[Record]) -> list[Record]:
    """Return the events of records that a group was handed; in a topic, these are the records."""
    return [event for record in records for event in events_of(record)] if context.is_packed else list(records)
