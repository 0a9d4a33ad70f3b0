"""topic list, and the topics in stats: how many records there are, and what their groups have left to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.errors import DelayqError, LoginRefused
from delayq.model.health import lag_text
from delayq.model.record import GroupInfo
from delayq.model.show import plural
from delayq.operations.topics import explain

from ..connection import ServerOptions
from ..options import command, json_option, server_options
from ..output import note, print_fields, print_json, print_table


def topic_counts(server: ServerOptions, name: str) -> dict[str, Any]:
    """Return the counts of a topic by name."""
    with server.topic(name) as topic:
        records, waiting = topic.length(due=False), topic.execute(explain.waiting)
        return {"topic": name, "records": records, "waiting": waiting, "groups": topic.groups()}


def topic_record(counts: dict[str, Any]) -> dict[str, Any]:
    """Return the same for printing as JSON."""
    return counts | {"groups": [group._asdict() for group in counts["groups"]]}


def of_all_topics(server: ServerOptions, names: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
    """Count all topics; return the counts, and the exit code: 1 if one of them could not be read.

    A topic that this user may not read is not a failure: observers of queues need no rights on topics.
    """
    found, failed = [], 0
    for name in names:
        try:
            found.append(topic_counts(server, name))
        except DelayqError as error:
            note(f"topic {name}: {error}")
            failed |= not isinstance(error, LoginRefused)
    return found, failed


def print_topic(counts: dict[str, Any]) -> None:
    """Print the counts of a topic, with a line for each of its groups."""
    rows = [
        (name, f"{counts[name]:,}" if name != "topic" else counts[name]) for name in ("topic", "records", "waiting")
    ]
    print_fields([*rows, *((f"group {each.name}", _of_group(each)) for each in counts["groups"])])


def print_topics(counts: Sequence[dict[str, Any]]) -> None:
    """Print the counts of topics, one per line."""
    columns = ("topic", "#records", "#waiting", "#groups", "#unacked", "#lag", "#dead")
    rows = [
        (
            each["topic"],
            f"{each['records']:,}",
            f"{each['waiting']:,}",
            len(each["groups"]),
            f"{sum(group.unacked for group in each['groups']):,}",
            lag_text(each["groups"]),
            f"{sum(group.dead for group in each['groups']):,}",
        )
        for each in counts
    ]
    print_table(columns, rows)


def _of_group(group: GroupInfo) -> str:
    consumers = plural(group.consumers, "consumer")
    return f"lag {lag_text([group])}, {group.unacked:,} unacked, {group.dead:,} dead, {consumers}"


@command("delayq topic publish orders '{\"order\": 1}'\ndelayq topic list", "List all topics.", "list")
@server_options
@json_option
def list_(server: ServerOptions, as_json: bool) -> int:
    """List all topics: their records, delayed records, and the lag of the slowest group.

    Exit code 1 if one of them cannot be read. Topics that this user may not read are named on stderr.
    """
    found, failed = of_all_topics(server, server.names()["topic"])
    if as_json:
        for each in found:
            print_json(topic_record(each))
    elif found:
        print_topics(found)
    elif not failed:
        note("no topics: nothing was ever published")
    return failed
