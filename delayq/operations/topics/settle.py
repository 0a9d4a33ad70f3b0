"""Settle the records of a group's consumer: ack, retry, bury or hand them back."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.errors import DelayqError, TopicError
from delayq.model import outcome as oc
from delayq.model.record import Record
from delayq.operations.topics.dead_letters import one_line
from delayq.operations.topics.topic_context import TopicContext, parts
from delayq.operations.watch import Watch
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, gather, unwrap
from delayq.protocol.topic_commands import MAX_LOOKED_AFTER, MAX_RECORDS, TopicCommands

Settled = Sequence[tuple[Record, oc.Outcome]]


def settle(context: TopicContext, group: str, consumer: str, settled: Settled) -> Operation[list[bool | DelayqError]]:
    """Ack records that are done, store the errors of failures, and bury dead records, all in one round trip.

    Returns:
        for each record, in order, whether the consumer still held it, or the error of its call. For an ack, False
        means that the group was created again and begins with the first record.
    """
    results: list[bool | DelayqError] = [True] * len(settled)
    calls: list[Command[int]] = []
    targets: list[Sequence[int]] = []
    shards = yield from context.known()
    done = [position for position, (_, outcome) in enumerate(settled) if isinstance(outcome, oc.Done)]
    for scripts, mark, part in parts(shards, done, lambda position: settled[position][0], MAX_RECORDS):
        targets.append(part)
        calls.append(scripts.ack(group, [settled[position][0].id for position in part], mark))
    for position, (record, outcome) in enumerate(settled):
        if record.shard < len(shards) and not isinstance(outcome, oc.Done):
            targets.append([position])
            calls.append(_settlement(shards[record.shard], group, consumer, record, outcome))
    for positions, reply in zip(targets, (yield calls) if calls else (), strict=True):
        for position in positions:
            if isinstance(reply, DelayqError):
                results[position] = reply
            else:
                results[position] = reply >= 0 if isinstance(settled[position][1], oc.Done) else bool(reply)
    return results


def settle_each(
    context: TopicContext, group: str, consumer: str, settled: Settled
) -> Operation[list[bool | DelayqError]]:
    """Settle records in one round trip as `settle` does, but none shares a call with another."""
    results = yield from gather(*(settle(context, group, consumer, [each]) for each in settled))
    return [each if isinstance(each, DelayqError) else each[0] for each in results]


def _settlement(scripts: TopicCommands, group: str, consumer: str, record: Record, outcome: oc.Outcome) -> Command[int]:
    match outcome:
        case oc.Failed(_, error):
            return scripts.fail(group, consumer, record.id, one_line(error), record.group_mark)
        case oc.Dead(reason, error):
            text = one_line(error) if error else ""
            return scripts.dead_letter(group, consumer, record.id, reason, text, record.group_mark)
        case _:
            raise AssertionError(f"{outcome!r} is not an outcome that a record can have")


def redeliver(
    context: TopicContext,
    group: str,
    consumer: str,
    records: Sequence[Record],
    counts: bool,
    watch: Watch | None = None,
) -> Operation[tuple[list[Record], list[Record], list[Record]]]:
    """Deliver records again to the consumer that holds them, in one call a shard.

    Records that were trimmed or deleted meanwhile leave the unacked list.

    Args:
        records: at most 250 of a shard.
        counts: whether this counts as another delivery.
        watch: of the consumer, which may have ended while the server was frozen.

    Returns:
        the records that it holds, as they are now; those not checked because earlier ones are large, or the call was
        late; those whose shard is unavailable.
    """
    ours: list[Record] = []
    left: list[Record] = []
    away: list[Record] = []
    shards = yield from context.opened()
    for scripts, mark, part in parts(shards, records, lambda record: record, MAX_LOOKED_AFTER):
        known = {each.id: each for each in part}
        try:
            by = watch.claims_by(scripts.keys.stream) if watch else ""
            reply = yield from execute(scripts.redeliver(group, consumer, list(known), counts, mark, by))
        except DelayqError as error:
            if not context.outlives(error):
                raise
            context.outages.met(scripts.keys.meta, error)
            away += known.values()
            continue
        for (record_id, fields), deliveries in zip(reply.records, reply.deliveries, strict=True):
            record = known[record_id]
            record.fields, record.deliveries = fields or (), deliveries
            ours.append(record)
        left += list(known.values())[reply.looked :]
        if reply.is_late and watch:
            watch.forget(scripts.keys.stream)
    return ours, left, away


def hand_back(
    context: TopicContext, group: str, consumer: str, keeper: str, records: Sequence[tuple[Record, bool]]
) -> Operation[None]:
    """Let others reclaim the records of an ending consumer at once.

    Args:
        records: each with whether its last delivery counts, because it failed.
    """
    calls: list[Command[list[int]]] = []
    for scripts, mark, part in parts((yield from context.known()), records, lambda each: each[0], MAX_LOOKED_AFTER):
        pairs = [(record.id, begun) for record, begun in part]
        calls.append(scripts.hand_back(group, consumer, keeper, pairs, mark))
    for reply in (yield calls) if calls else ():
        if not context.outlives(reply):  # others take these records over after the ack timeout
            unwrap(reply)


def leave(context: TopicContext, group: str, consumer: str) -> Operation[None]:
    """Remove a consumer from a group, if it holds nothing."""
    for reply in (yield [scripts.remove_consumer(group, consumer, "") for scripts in (yield from context.known())]):
        if not (isinstance(reply, TopicError) or context.outlives(reply)):  # it still holds records, or is already gone
            unwrap(reply)


# Before 7.2, Redis notices a consumer only if there are records for it. Removing a live one does no harm: it is created
# again.
FORGOTTEN_MS = 3_600_000
NAMELESS = r"-%d+-%x%x%x%x%x%x$"  # the suffix that `Lifecycle` adds to the host's name


def drop_idle_consumers(context: TopicContext, group: str) -> Operation[int]:
    """Remove killed consumers with generated names once they hold no records.

    A consumer that leaves its group in order removes itself.
    """
    shards = yield from context.opened()
    replies = yield [scripts.drop_idle_consumers(group, FORGOTTEN_MS, NAMELESS) for scripts in shards]
    return sum(context.unwrap(reply, 0) for reply in replies)
