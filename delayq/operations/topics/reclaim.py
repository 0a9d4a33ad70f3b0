"""Reclaim what other consumers of a group have left unacked for long."""

from __future__ import annotations

from delayq.errors import DelayqError, InvalidInput
from delayq.log import log
from delayq.model.record import Record
from delayq.model.units import Seconds, milliseconds
from delayq.model.validation import check_limit
from delayq.operations.queue_context import is_whole
from delayq.operations.topics.group_read import MAX_POLLED
from delayq.operations.topics.read import records
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.operation import Operation, execute
from delayq.protocol.topic_commands import MAX_LOOKED_AFTER, TopicCommands


class Reclaimed:
    """What a rescue has brought: records, how many were buried, how many ghosts were cleared, and what went wrong.

    Attributes:
        trouble: what kept it from looking at all shards, if anything.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.buried = self.ghosts = 0
        self.trouble: DelayqError | None = None


MAX_LOOKS = 10  # of one rescue at a shard, when it may go on another time


def reclaim(
    context: TopicContext,
    group: str,
    consumer: str,
    ack_timeout: Seconds,
    count: int,
    most: int | None,
    places: dict[int, str] | None = None,
) -> Operation[Reclaimed]:
    """Hand up to `count` records that were unacked for `ack_timeout` to a consumer, oldest first.

    What was taken is returned, whatever comes after it; an error is raised only when nothing was.

    Args:
        most: deliveries of a record, after which it is a dead letter of the group; None for any number.
        places: of a caller who comes again: where it has stopped, a shard that it has not looked through; it goes on
            there, looks at a part, and this is brought up to date. With None, it looks at all there is.
    """
    check_limit(count, "count", most=MAX_POLLED)
    if most is not None and not (is_whole(most) and most >= 1):
        raise InvalidInput(f"max_deliveries {most!r} is not a number of deliveries, 1 or more")
    idle, done = milliseconds(ack_timeout, "ack_timeout"), Reclaimed()
    shards = yield from context.opened()
    context.rescues += 1  # begin with another shard each time: one that fails keeps nobody from the others for ever
    for number in range(len(shards)):
        place = (context.rescues + number) % len(shards)
        try:
            yield from _reclaim(context, shards[place], group, consumer, (idle, count, most), done, places)
        except DelayqError as error:  # what was taken before must not be forgotten
            if not done.records:
                raise
            done.trouble = error
            log.warning(
                "not all that others have left was looked for", topic=context.name, group=group, error=str(error)
            )
            break
    return done


def _reclaim(
    context: TopicContext,
    scripts: TopicCommands,
    group: str,
    consumer: str,
    wanted: tuple[int, int, int | None],
    done: Reclaimed,
    places: dict[int, str] | None,
) -> Operation[None]:
    """Take over what there is of a shard."""
    idle, count, most = wanted
    number, looks = context.number(scripts), 0
    after = "" if places is None else places.pop(number, "")
    while len(done.records) < count and (places is None or looks < MAX_LOOKS):
        limit = min(MAX_LOOKED_AFTER, count - len(done.records))
        found = yield from execute(scripts.reclaim(group, consumer, idle, after, limit, most))
        looks += 1
        done.buried += found.buried
        done.ghosts += found.ghosts
        for record, deliveries in zip(
            records(context, scripts, found.records, deliveries=1), found.deliveries, strict=True
        ):
            record.deliveries = deliveries
            done.records.append(record)
        after = found.after
        if not after:
            return
    if places is not None and after:
        places[number] = after
