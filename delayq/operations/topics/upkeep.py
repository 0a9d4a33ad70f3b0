"""Upkeep of a group, done by those who take its records: consumers, and programs that call `poll`."""

from __future__ import annotations

from typing import TypeVar

from delayq.errors import DelayqError, ServerUnreachable
from delayq.log import log
from delayq.model.units import milliseconds
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.operation import Operation, gather, unwrap

T = TypeVar("T")


def beside(context: TopicContext, group: str, polling: Operation[T]) -> Operation[T]:
    """Run a poll; once a minute, also delete a page of old dead letters in its round trips."""
    purging = context.purging[group]
    if not purging.due():
        return (yield from polling)
    polled, more = yield from gather(polling, purge_old(context, group))
    if more is True:
        purging.now()
    result: T = unwrap(polled)
    return result


def purge_old(context: TopicContext, group: str) -> Operation[bool]:
    """Delete some of the dead letters that are past the topic's retention; return whether there may be more."""
    retention = context.settings.dead_retention
    if retention is None:
        return False
    shards, bound = (yield from context.opened()), f"-{milliseconds(retention)}"
    more = False
    for reply in (yield [scripts.trim("MINID", bound, exact=True, dead_of=group) for scripts in shards]):
        if not isinstance(reply, DelayqError):
            more = more or bool(reply[1])
        elif not isinstance(reply, ServerUnreachable):  # an outage is logged elsewhere
            log.warning("old dead letters not deleted", topic=context.name, group=group, error=str(reply))
    return more
