"""Taking over what other consumers of a group have left unacked for long."""

from __future__ import annotations

from delayq.calls import Steps, one
from delayq.errors import DelayqError, InvalidInput
from delayq.log import log
from delayq.operations.core import is_whole
from delayq.operations.inspecting import check_limit
from delayq.times import Seconds, milliseconds
from delayq.topics.core import TopicCore
from delayq.topics.grouping import MAX_POLLED
from delayq.topics.reading import records
from delayq.topics.record import Record
from delayq.topics.scripts import MAX_LOOKED_AFTER, TopicScripts


class Rescue:
    """What a rescue has brought: records, how many were buried, how many ghosts were cleared, and what went wrong.

    Attributes:
        trouble: what kept it from looking at all shards, if anything.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.buried = self.ghosts = 0
        self.trouble: DelayqError | None = None


MAX_LOOKS = 10  # of one rescue at a shard, when it may go on another time


def rescue(
    core: TopicCore,
    group: str,
    consumer: str,
    ack_timeout: Seconds,
    count: int,
    most: int | None,
    places: dict[int, str] | None = None,
) -> Steps[Rescue]:
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
    idle, done = milliseconds(ack_timeout, "ack_timeout"), Rescue()
    shards = yield from core.opened()
    core.rescues += 1  # begin with another shard each time: one that fails keeps nobody from the others for ever
    for number in range(len(shards)):
        place = (core.rescues + number) % len(shards)
        try:
            yield from _rescue(core, shards[place], group, consumer, (idle, count, most), done, places)
        except DelayqError as error:  # what was taken before must not be forgotten
            if not done.records:
                raise
            done.trouble = error
            log.warning("not all that others have left was looked for", topic=core.name, group=group, error=str(error))
            break
    return done


def _rescue(
    core: TopicCore,
    scripts: TopicScripts,
    group: str,
    consumer: str,
    wanted: tuple[int, int, int | None],
    done: Rescue,
    places: dict[int, str] | None,
) -> Steps[None]:
    """Take over what there is of a shard."""
    idle, count, most = wanted
    number, looks = core.number(scripts), 0
    after = "" if places is None else places.pop(number, "")
    while len(done.records) < count and (places is None or looks < MAX_LOOKS):
        limit = min(MAX_LOOKED_AFTER, count - len(done.records))
        found = yield from one(scripts.rescue(group, consumer, idle, after, limit, most))
        looks += 1
        done.buried += found.buried
        done.ghosts += found.ghosts
        for record, deliveries in zip(records(core, scripts, found.records), found.deliveries, strict=True):
            record.deliveries = deliveries
            done.records.append(record)
        after = found.after
        if not after:
            return
    if places is not None and after:
        places[number] = after
