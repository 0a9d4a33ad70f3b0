"""Reclaim records that other consumers of a group have left unacked for long."""

from __future__ import annotations

from delayq.errors import DelayqError
from delayq.log import log
from delayq.model.lease_clock import lease_now
from delayq.model.record import Record
from delayq.model.units import Seconds, milliseconds
from delayq.model.validation import check_limit
from delayq.operations.topics.group_read import MAX_POLLED
from delayq.operations.topics.read import records
from delayq.operations.topics.topic_context import TopicContext, check_deliveries
from delayq.operations.watch import Watch
from delayq.protocol.operation import Operation, execute
from delayq.protocol.topic_commands import MAX_LOOKED_AFTER


class Reclaimed:
    """The result: the records taken over, how many were buried, how many ghosts were cleared, and what went wrong.

    Attributes:
        trouble: the error that kept it from checking all shards, or None.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.buried = self.ghosts = 0
        self.trouble: DelayqError | None = None


def reclaim(
    context: TopicContext, group: str, consumer: str, ack_timeout: Seconds, count: int, most: int | None
) -> Operation[Reclaimed]:
    """Hand up to `count` records that were unacked for `ack_timeout` to a consumer, oldest first.

    Records that were taken are always returned; an error is raised only if there are none.

    Args:
        most: the deliveries after which a record becomes a dead letter of the group; None for no limit.
    """
    check_limit(count, "count", most=MAX_POLLED)
    check_deliveries(most)
    done = Reclaimed()
    places: dict[int, str] = {}
    yield from reclaim_page(context, group, consumer, ack_timeout, count, most, places, done)
    while places and len(done.records) < count and done.trouble is None:
        yield from reclaim_page(context, group, consumer, ack_timeout, count, most, places, done)
    if done.trouble is not None:
        if not done.records:
            raise done.trouble
        text = "takeover incomplete"
        log.warning(text, topic=context.name, group=group, error=str(done.trouble))
    return done


def reclaim_page(
    context: TopicContext,
    group: str,
    consumer: str,
    ack_timeout: Seconds,
    count: int,
    most: int | None,
    places: dict[int, str],
    done: Reclaimed,
    watch: Watch | None = None,
) -> Operation[None]:
    """Reclaim a page, with one call a shard, and add to the result.

    Args:
        places: the shards that are left, each with the id after which to continue. If empty, it begins with all of
            them. It is updated.
        watch: of a consumer that does this regularly; None for any other caller.
    """
    idle, shards = milliseconds(ack_timeout, "ack_timeout"), (yield from context.opened())
    if not places:  # start with another shard each time, so that a failing one does not block the others for ever
        context.reclaims += 1
        places.update(((context.reclaims + number) % len(shards), "") for number in range(len(shards)))
    for number, after in list(places.items()):
        limit = min(MAX_LOOKED_AFTER, count - len(done.records))
        if limit <= 0:
            return
        del places[number]
        if number >= len(shards):  # the topic was created again, with fewer shards
            continue
        scripts = shards[number]
        try:
            shard, asked = scripts.keys.stream, lease_now()
            by, until = (watch.by(shard), watch.claims_by(shard)) if watch else ("", "")
            call = scripts.reclaim(group, consumer, idle, after, limit, most, by, watch is not None, until)
            found = yield from execute(call)
            if watch:
                watch.heard(shard, asked, found.now_ms, found.grace_ms)
        except DelayqError as error:  # return the records already taken
            done.trouble = error
            if context.outlives(error):
                continue
            return
        done.buried += found.buried
        done.ghosts += found.ghosts
        taken = records(context, scripts, found.records, 1, found.mark)
        for record, deliveries in zip(taken, found.deliveries, strict=True):
            record.deliveries = deliveries
        done.records += taken
        if found.after:
            places[number] = found.after
