"""topic groups, unacked, claim and destroy: the groups of a topic, and what they have not acked."""

from __future__ import annotations

import click

from delayq.model.record import lag_text
from delayq.model.validation import check_group_name
from delayq.operations.topics import reclaim
from delayq.topic import Topic
from delayq.topic_group import Group

from .. import candidates
from ..formats import show_duration
from ..options import DURATION, ExampledCommand, example, json_option, limit_option, long_option, yes_option
from ..output import note, plural, print_json, print_table, say
from .group import group
from .options import existing, group_argument, print_records, records_option, topic_argument

__all__ = ["claim", "destroy", "group", "groups", "unacked"]

MADE = """\
delayq topic publish orders '{"order": 1}'
delayq topic group create orders billing --start 0
"""
POLLED = MADE + "delayq topic read orders billing --consumer billing-1\n"


@click.command(cls=ExampledCommand, epilog=example(MADE + "delayq topic groups orders"), short_help="List the groups.")
@topic_argument
@click.argument("group_name", metavar="[GROUP]", required=False, shell_complete=candidates.groups)
@json_option
def groups(topic: Topic, group_name: str | None, as_json: bool) -> None:
    """List the groups of TOPIC with their lag, the records not yet delivered; or the consumers of GROUP."""
    if group_name is not None:
        _consumers(topic, group_name, as_json)
        return
    found = topic.groups()
    if as_json:
        for each in found:
            print_json(each._asdict())
    elif not found:
        note(f"topic {topic.name} has no group")
    else:
        rows = [(*each[:3], lag_text([each]), each.dead, each.position) for each in found]
        print_table(("name", "#consumers", "#unacked", "#lag", "#dead", "position"), rows)


def _consumers(topic: Topic, group_name: str, as_json: bool) -> None:
    with existing(topic, group_name) as group:
        found = group.consumers()
    if as_json:
        for each in found:
            print_json(each._asdict())
    elif not found:
        note(f"group {group_name} has no consumer")
    else:
        print_table(("name", "#unacked", "idle"), [(*each[:2], show_duration(each.idle)) for each in found])


@click.command(
    cls=ExampledCommand,
    epilog=example(POLLED + "delayq topic unacked orders billing --limit 5"),
    short_help="List what a group was handed and has not acked.",
)
@group_argument
@click.option("--consumer", metavar="NAME", help="Only records that this consumer holds.")
@click.option("--idle", type=DURATION, default=0, metavar="TIME", help="Only records delivered at least this long ago.")
@limit_option
@click.option("--clear-ghosts", is_flag=True, help="Remove trimmed records from the list, and print how many.")
@json_option
def unacked(
    group: Group, consumer: str | None, idle: float, limit: int, clear_ghosts: bool, as_json: bool
) -> None:  # fmt: skip
    """List the unacked records of GROUP of TOPIC by id, each with its consumer, idle time and deliveries."""
    if clear_ghosts:
        if consumer is not None or idle:
            raise click.UsageError("--consumer and --idle do not go with --clear-ghosts, which looks at all")
        cleared = group.clear_ghosts()
        if as_json:
            print_json({"cleared": cleared})
        else:
            say(f"cleared {plural(cleared, 'ghost')} of group {group.name}")
        return
    found = group.unacked(consumer, idle=idle, count=limit)
    if as_json:
        for each in found:
            print_json(each._asdict())
    elif not found:
        note(f"group {group.name} has nothing unacked there")
    else:
        rows = [(each.id, each.consumer, show_duration(each.idle), each.deliveries) for each in found]
        print_table(("id", "consumer", "idle", "#deliveries"), rows)


@click.command(
    cls=ExampledCommand,
    epilog=example(POLLED + "delayq topic claim orders billing billing-2 --idle 0 --limit 5"),
    short_help="Take over what others have not acked.",
)
@topic_argument
@click.argument("group_name", metavar="GROUP", shell_complete=candidates.groups)
@click.argument("consumer", metavar="CONSUMER")
@click.option(
    "--idle", type=DURATION, default="30s", show_default=True, metavar="TIME", help="What was handed out so long ago."
)
@click.option("--max-deliveries", type=click.IntRange(1), metavar="N", help="Bury what was delivered so often.")
@records_option
@long_option
@json_option
def claim(
    topic: Topic, group_name: str, consumer: str, idle: float, max_deliveries: int | None, limit: int, long: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Take over for CONSUMER what anybody of GROUP was handed so long ago and has not acked, oldest first.

    Of several who claim at the same time, one gets a record. Records that were trimmed meanwhile leave the list.
    """
    check_group_name(consumer, "consumer name")
    # Not by `fetch_not_acked`: who asks on a terminal wants to know what was buried and cleared, too.
    done = topic.execute(reclaim.reclaim, group_name, consumer, idle, limit, max_deliveries)
    if done.records or not (done.buried or done.ghosts):
        print_records(done.records, long, as_json, f"group {group_name} has nothing that was unacked for so long")
    tell = note if as_json else say
    if done.buried:
        tell(f"buried {plural(done.buried, 'record')}: see delayq topic group dead")
    if done.ghosts:
        tell(f"cleared {plural(done.ghosts, 'ghost')}: the records were trimmed")


@click.command(
    cls=ExampledCommand,
    epilog=example(MADE + "delayq topic destroy orders billing --yes"),
    short_help="Take a group away.",
)
@group_argument
@yes_option("Destroy group {group.name} of topic {group.topic}, with its unacked list and its dead letters?")
@json_option
def destroy(group: Group, as_json: bool) -> None:
    """Take GROUP of TOPIC away, with its unacked list and its dead letters. Exit code 1 if it does not exist."""
    if not group.destroy():
        raise click.ClickException(f"topic {group.topic} has no group {group.name!r}")
    if as_json:
        print_json({"destroyed": group.name})
    else:
        say(f"destroyed group {group.name} of topic {group.topic}")
