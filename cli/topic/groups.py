"""topic groups, unacked, claim and destroy: the groups of a topic, and their unacked records."""

from __future__ import annotations

import click

from delayq.model.health import lag_text
from delayq.model.show import plural, show_duration
from delayq.model.validation import check_group_name
from delayq.operations.topics import reclaim
from delayq.topic import Topic
from delayq.topic_group import Group

from .. import candidates
from ..options import DURATION, command, json_option, limit_option, long_option, yes_option
from ..output import note, print_list, report, say
from .group import group
from .options import existing, group_argument, print_records, records_option, topic_argument

__all__ = ["claim", "destroy", "group", "groups", "unacked"]

MADE = """\
delayq topic publish orders '{"order": 1}'
delayq topic group create orders billing --start 0
"""
POLLED = MADE + "delayq topic read orders billing --consumer billing-1\n"


@command(MADE + "delayq topic groups orders", "List the groups.")
@topic_argument
@click.argument("group_name", metavar="[GROUP]", required=False, shell_complete=candidates.groups)
@json_option
def groups(topic: Topic, group_name: str | None, as_json: bool) -> None:
    """List the groups of TOPIC with their lag (records not yet delivered), or the consumers of GROUP."""
    if group_name is not None:
        _consumers(topic, group_name, as_json)
        return
    found = topic.groups()
    columns = ("name", "#consumers", "#unacked", "#lag", "#dead", "position")
    rows = [(*each[:3], lag_text([each]), each.dead, each.position) for each in found]
    print_list(found, columns, rows, f"topic {topic.name} has no groups", as_json)


def _consumers(topic: Topic, group_name: str, as_json: bool) -> None:
    found = existing(topic, group_name).consumers()
    rows = [(*each[:2], show_duration(each.idle)) for each in found]
    print_list(found, ("name", "#unacked", "idle"), rows, f"group {group_name} has no consumers", as_json)


@command(
    POLLED + "delayq topic unacked orders billing --limit 5", "List records that a group has received but not acked."
)
@group_argument
@click.option("--consumer", metavar="NAME", help="Only records that this consumer holds.")
@click.option(
    "--idle",
    type=DURATION,
    default=0,
    show_default=False,
    metavar="TIME",
    help="Only records delivered at least this long ago.",
)
@limit_option
@click.option("--clear-ghosts", is_flag=True, help="Remove trimmed records from the list, and print how many.")
@json_option
def unacked(
    group: Group, consumer: str | None, idle: float, limit: int, clear_ghosts: bool, as_json: bool
) -> None:  # fmt: skip
    """List the unacked records of GROUP of TOPIC by id, each with its consumer, idle time and deliveries."""
    if clear_ghosts:
        if consumer is not None or idle:
            raise click.UsageError("leave out --consumer and --idle with --clear-ghosts, which checks all records")
        cleared = group.clear_ghosts()
        report({"cleared": cleared}, f"cleared {plural(cleared, 'ghost')} of group {group.name}", as_json)
        return
    found = group.unacked(consumer, idle=idle, count=limit)
    nothing = f"group {group.name} has no unacked records{' that match' if consumer or idle else ''}"
    rows = [(each.id, each.consumer, show_duration(each.idle), each.deliveries) for each in found]
    print_list(found, ("id", "consumer", "idle", "#deliveries"), rows, nothing, as_json)


@command(
    POLLED + "delayq topic claim orders billing billing-2 --idle 0 --limit 5",
    "Take over records that others have not acked.",
)
@topic_argument
@click.argument("group_name", metavar="GROUP", shell_complete=candidates.groups)
@click.argument("consumer", metavar="CONSUMER")
@click.option(
    "--idle",
    type=DURATION,
    default="30s",
    metavar="TIME",
    help="Records that were delivered at least this long ago.",
)
@click.option(
    "--max-deliveries",
    type=click.IntRange(1),
    metavar="N",
    help="Records that were delivered N times or more become dead letters.",
)
@records_option
@long_option
@json_option
def claim(
    topic: Topic, group_name: str, consumer: str, idle: float, max_deliveries: int | None, limit: int, long: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Give CONSUMER the records of GROUP that have been unacked for at least --idle, the oldest first.

    If several consumers claim at the same time, each record goes to only one of them. Trimmed records are removed from
    the unacked list.
    """
    check_group_name(consumer, "consumer name")
    # Not with `fetch_not_acked`: a person at a terminal also wants to know what was buried and cleared.
    done = topic.execute(reclaim.reclaim, group_name, consumer, idle, limit, max_deliveries)
    if done.records or not (done.buried or done.ghosts):
        print_records(
            done.records, long, as_json, f"group {group_name} has no records that have been unacked for that long"
        )
    tell = note if as_json else say
    if done.buried:
        tell(f"buried {plural(done.buried, 'record')}: see delayq topic group dead")
    if done.ghosts:
        tell(f"cleared {plural(done.ghosts, 'ghost')}: the records were trimmed")


@command(MADE + "delayq topic destroy orders billing --yes", "Delete a group.")
@group_argument
@yes_option("Delete group {group.name} of topic {group.topic} with its unacked list and dead letters?")
@json_option
def destroy(group: Group, as_json: bool) -> None:
    """Delete GROUP of TOPIC with its unacked list and dead letters. Exit code 1 if it does not exist."""
    if not group.destroy():
        raise click.ClickException(f"topic {group.topic} has no group {group.name!r}")
    report({"destroyed": group.name}, f"deleted group {group.name} of topic {group.topic}", as_json)
