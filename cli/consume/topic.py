"""``delayq consume --topic``: handle the records of a topic."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import click
import structlog

from delayq import Middleware, Record, TopicConsumer, aio
from delayq.model.outcome import check_async_handler, is_coroutine_function
from delayq.model.positions import Position

from ..connection import ServerOptions
from ..options import DURATION, POSITION, Function
from ..targets import load_function

OWN = ("ledger", "group", "start", "max_deliveries", "ack_timeout")
NOT_FOR_TOPICS = ("program", "exec_with_url", "strict", "pool", "lease", "events", "recycle_after", "recycle_memory")


class Subscription(NamedTuple):
    """The topic to handle, and the group."""

    topic: str
    ledger: bool
    group: str
    start: Position
    max_deliveries: int | None
    ack_timeout: float


def topic_options(function: Function) -> Function:
    """--topic and its options; the function gets a `Subscription` as `subscription`, or None."""

    @click.option("--topic", metavar="NAME", help="Handle the records of this topic; TARGET is MODULE:HANDLER.")
    @click.option("--ledger", is_flag=True, help="With --topic: NAME is a queue; read its ledger.")
    @click.option("--group", metavar="NAME", help="With --topic: the group to read for; created if missing.")
    @click.option(
        "--start",
        type=POSITION,
        metavar="POSITION",
        default="$",
        help="With --topic: where a new group starts: after this id, at 0 (the first record), at a time with a zone, "
        "or at $ (new records only).",
    )
    @click.option(
        "--max-deliveries",
        type=click.IntRange(1),
        metavar="N",
        help="With --topic: a record becomes a dead letter of the group after N deliveries. Default: no limit.",
    )
    @click.option(
        "--ack-timeout",
        default="30s",
        type=DURATION,
        metavar="TIME",
        help="With --topic: redeliver a record this long after its consumer has died.",
    )
    @click.pass_context
    @functools.wraps(function)
    def with_subscription(ctx: click.Context, *args: Any, **kwargs: Any) -> Any:
        topic = kwargs.pop("topic")
        own = {name: kwargs.pop(name) for name in OWN}
        _check(ctx, topic, own["group"])
        return ctx.invoke(function, *args, subscription=topic and Subscription(topic, **own), **kwargs)

    return with_subscription


def _check(ctx: click.Context, topic: str | None, group: str | None) -> None:
    given = {
        each.name: max(each.opts, key=len)
        for each in ctx.command.params
        if each.name and ctx.get_parameter_source(each.name) is click.core.ParameterSource.COMMANDLINE
    }
    if topic is None:
        for name in OWN:
            if name in given:
                raise click.UsageError(f"{given[name]} needs --topic: give the topic whose records to handle")
        return
    if group is None:
        raise click.UsageError("--topic needs --group: give the group to handle records for")
    for name in NOT_FOR_TOPICS:
        if name in given:
            raise click.UsageError(f"{given[name]} applies only to queues: leave it out with --topic")
    if len(ctx.params["targets"]) > 1:
        raise click.UsageError("--topic takes only one TARGET: run one delayq consume for each handler")


def consume_topic(
    server: ServerOptions,
    subscription: Subscription,
    target: str,
    options: dict[str, Any],
    limits: dict[str, Any],
    watch: Callable[[Any], None],
) -> int:
    """Handle records until a signal arrives, or within `limits`; return how many a second signal abandoned.

    Args:
        watch: called with the consumer before it runs.

    Raises:
        click.UsageError: `target` is not a function that can handle records.
    """
    handler = load_function(target)
    check_async_handler(handler)
    options |= {"ack_timeout": subscription.ack_timeout}
    how: dict[str, Any] = {"start": subscription.start, "max_deliveries": subscription.max_deliveries}
    if is_coroutine_function(handler):
        return asyncio.run(_consume_async(server, subscription, handler, how, options, limits, watch))
    with server.topic(subscription.topic, subscription.ledger) as topic:
        group = topic.group(subscription.group, **how)
        consumer = TopicConsumer(group, handler, middleware=_naming(group.name), **options)
        watch(consumer)
        consumer.run(**limits)
        return consumer.abandoned


async def _consume_async(
    server: ServerOptions,
    subscription: Subscription,
    handler: Callable[[Record], Any],
    how: dict[str, Any],
    options: dict[str, Any],
    limits: dict[str, Any],
    watch: Callable[[Any], None],
) -> int:
    kind = aio.Queue if subscription.ledger else aio.Topic
    async with kind(subscription.topic, url=server.url, prefix=server.prefix, shards=None) as source:
        topic = source.events if isinstance(source, aio.Queue) else source
        group = await topic.group(subscription.group, **how)
        consumer = aio.TopicConsumer(group, handler, middleware=_naming(group.name), **options)
        watch(consumer)
        await consumer.run(**limits)
        return consumer.abandoned


def _naming(group: str) -> Middleware:
    """Return a middleware that lets a handler's log lines name their record."""

    def named(record: Record) -> AbstractContextManager[Any]:
        return structlog.contextvars.bound_contextvars(group=group, **record.labels)

    middleware = Middleware()
    middleware.around_delivery(named)
    return middleware
