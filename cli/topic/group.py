"""topic group create, move, ack, remove-consumer, dead, requeue and delete: change a group of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from delayq.model.actions import DEAD_ACTIONS, GROUP_ACTIONS, Action
from delayq.model.health import lag_text
from delayq.model.outcome import cause
from delayq.model.record import DeadRecord
from delayq.model.show import plural
from delayq.model.validation import MOST_LISTED, check_group_name
from delayq.topic import Topic
from delayq.topic_group import Group

from ..formats import show_moment
from ..options import POSITION, command_group, json_option, limit_option, long_option, yes_option
from ..output import PREVIEW, note, print_json, print_table, report, say, shortened
from .options import group_argument, record_document, record_text, topic_argument

MADE = """\
delayq topic publish orders '{"order": 1}' --id 1700000000000-0
delayq topic group create orders billing --start 0
"""
POLLED = MADE + "delayq topic read orders billing --consumer billing-1\n"
DIED = POLLED + "delayq topic claim orders billing billing-2 --idle 0 --max-deliveries 1\n"


@command_group(MADE + "delayq topic group move orders billing 0", "Create, move and change a group.")
def group() -> None:
    """Create or move a group, ack its records, remove its consumers, and handle its dead letters."""


@group.command("delayq topic group create orders billing --start 0", "Create a group.")
@topic_argument
@click.argument("group_name", metavar="GROUP")
@click.option(
    "--start", type=POSITION, default="$", metavar="POSITION",
    help="Start after this id, at 0 (the first record), at a time with a zone, or at $ (new records only).",
)  # fmt: skip
@json_option
def create(topic: Topic, group_name: str, start: Any, as_json: bool) -> None:
    """Create GROUP of TOPIC. An existing group keeps its position."""
    check_group_name(group_name)
    created = topic.group(group_name, start).is_new
    made = f"{GROUP_ACTIONS['make'].words.became} group {group_name} of topic {topic.name}"
    line = made if created else f"{group_name} already exists: not moved"
    report({"group": group_name, "created": created}, line, as_json)


@group.command(MADE + "delayq topic group move orders billing 0", "Move a group to another position.")
@group_argument
@click.argument("position", type=POSITION, metavar="POSITION")
def move(group: Group, position: Any) -> None:
    """Move GROUP of TOPIC to POSITION: after an id, 0 (the first record), a time with a zone, or $ (new records only).

    Unacked records stay unacked.
    """
    group.set_position(position)
    say(f"{GROUP_ACTIONS['move'].words.became} group {group.name}, lag {lag_text([group.info()])}")


@group.command(POLLED + "delayq topic group ack orders billing 1700000000000-0", "Ack records by id.")
@group_argument
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@json_option
def ack(group: Group, ids: Sequence[str], as_json: bool) -> None:
    """Ack records of a TOPIC without shards by ID. Exit code 1 if one of them was not unacked."""
    acked = group.ack(ids)
    report({"acked": acked}, f"acked {plural(acked, 'record')}", as_json)
    if left := len(set(ids)) - acked:
        raise click.ClickException(
            f"not acked: {left} of {len(set(ids))}, not in the unacked list of group {group.name}"
        )


@group.command(
    POLLED + "delayq topic group remove-consumer orders billing billing-1 --to billing-2",
    "Remove a consumer.",
    "remove-consumer",
)
@group_argument
@click.argument("consumer", metavar="CONSUMER")
@click.option("--to", "heir", metavar="NAME", help="The consumer that takes over its records.")
@json_option
def remove_consumer(group: Group, consumer: str, heir: str | None, as_json: bool) -> None:
    """Remove CONSUMER of GROUP. If it holds records and --to is missing, nothing changes and the exit code is 1."""
    moved = group.remove_consumer(consumer, heir)
    handed = f", {plural(moved, 'record')} handed over to {heir}" if moved else ""
    report({"removed": consumer, "handed_over": moved}, f"removed {consumer}{handed}", as_json)


@group.command(DIED + "delayq topic group dead orders billing", "List the dead letters of a group.")
@group_argument
@limit_option
@long_option
@json_option
def dead(group: Group, limit: int, long: bool, as_json: bool) -> None:
    """List the dead letters of GROUP of TOPIC, the oldest first."""
    found = group.dead(limit)
    if as_json:
        for each in found:
            print_json(each._asdict() | {"record": record_document(each.record), "died_at": each.died_at})
    elif not found:
        note(f"group {group.name} has no dead letters")
    else:
        rows = [
            (
                each.id,
                each.record.id,
                show_moment(each.died_at, long),
                each.deliveries,
                shortened(cause(each.reason, each.errors[-1] if each.errors else None), PREVIEW),
                record_text(each.record, PREVIEW),
            )
            for each in found
        ]
        print_table(("id", "record", "died", "#deliveries", "reason", "payload"), rows)


@group.command(DIED + "delayq topic group requeue orders billing --all", "Requeue dead letters.")
@group_argument
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All current dead letters, instead of IDs.")
@json_option
def requeue(group: Group, ids: Sequence[str], everything: bool, as_json: bool) -> None:
    """Requeue dead letters of GROUP as if they had never been delivered: the next claim or consumer takes them.

    A trimmed record is appended again, for GROUP only: the next read or consumer takes it. Exit code 1 if one of the
    IDs is not dead.
    """
    chosen, wanted = _chosen(group, ids, everything)
    _report(DEAD_ACTIONS["requeue"], group.requeue_dead(chosen), wanted, as_json)


@group.command(DIED + "delayq topic group delete orders billing --all --yes", "Delete dead letters.")
@group_argument
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All current dead letters, instead of IDs.")
@yes_option("Permanently delete these dead letters of group {group.name} of topic {group.topic}?")
@json_option
def delete(group: Group, ids: Sequence[str], everything: bool, as_json: bool) -> None:
    """Permanently delete dead letters of GROUP. Exit code 1 if one of the IDs is not dead."""
    chosen, wanted = _chosen(group, ids, everything)
    _report(DEAD_ACTIONS["delete"], group.delete_dead(chosen), wanted, as_json)


def _chosen(group: Group, ids: Sequence[str], everything: bool) -> tuple[list[DeadRecord], int]:
    """Return the requested dead letters, and how many were requested."""
    if bool(ids) == everything:
        raise click.UsageError("give either IDs of dead letters, or --all")
    letters = group.dead(MOST_LISTED)
    chosen = [each for each in letters if everything or each.id in ids]
    return chosen, len(chosen) if everything else len(set(ids))


def _report(action: Action, count: int, wanted: int, as_json: bool) -> None:
    done = action.words.became
    report({done: count}, f"{done} {plural(count, 'record')}", as_json)
    if wanted > count:
        raise click.ClickException(f"unchanged: {wanted - count} of {wanted}, not dead")
