"""A group that the server has lost: it begins again after the records that are known to have been handed out."""

from __future__ import annotations

from collections.abc import Callable

from delayq.operations.topics import group_admin, group_read
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.operation import Operation
from delayq.protocol.topic_commands import Recreated
from delayq.runtime.group_member import GroupMember


class GroupRecovery:
    """Creates the group of a consumer again.

    Args:
        on_recreated: called for each shard on which it has done so.

    Attributes:
        is_due: a heartbeat has found that the group is lost.
    """

    def __init__(self, context: TopicContext, member: GroupMember, on_recreated: Callable[[], None]) -> None:
        self.is_due = False
        self._context = context
        self._member = member
        self._on_recreated = on_recreated
        self._handed: dict[int, str] = {}  # by shard, the id up to which the group is known to have received records

    def note(self, handed: group_read.PolledRecords) -> None:
        """Note which records the group has received."""
        self._handed |= {number: last for number, last in enumerate(handed.lasts) if "-" in last}
        self._handed |= {record.shard: record.id for record in handed.records}

    def recreate(self) -> Operation[list[Recreated]]:
        """Create the group where it is lost, and return where that was. Raises UnknownGroup: it was destroyed."""
        made = yield from group_admin.recreate(
            self._context, self._member.group, self._handed, self._member.ack_timeout
        )
        self.is_due = False
        for each in made:
            self._on_recreated()
            if each.after == "0":
                self._handed.clear()  # the topic may be another one
        return made
