# Made from delayq/aio/message_group.py by `make faces`: change that file.
"""A group of messages as `Queue.group` returns it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from delayq.errors import DelayqError, InvalidInput, NoResult
from delayq.model.message_group import RESULTS_A_TRIP, MessageGroupInfo


class MessageGroup(MessageGroupInfo, frozen=True, kw_only=True, dict=True):
    """A group of messages as it is at one instant.

    Attributes:
        total: how many members it was sent with.
        left: how many have not ended, including the dead letters that the group waits for.
        dead: how many have become dead letters. If the group waits for these, requeued and deleted ones do not count.
        state: "running"; "blocked" if it waits only for dead letters; "done"; or "cancelled".
        then: the id of the message that waits, or waited, for the group; None if there is none.
        created_at: when it was sent.
        ended_at: when its last member ended; None before.
    """

    def results(self, *, return_exceptions: bool = False) -> Iterator[Any]:
        """Yield what the members' tasks returned, as JSON holds it, in the order in which they were sent.

        A few are read at a time, so that a large group takes little memory. Nothing is waited for.

        Args:
            return_exceptions: yield the errors below in the places of the values, instead of raising the first one.

        Raises:
            TaskFailed: a member has failed permanently, or expired.
            ResultTimeout: a member has not ended.
            NoResult: no result of a member is kept: its task was registered without `results`, it was cancelled, purged
                or replaced, or its result has expired. It is raised for the whole group if another program has removed
                the list of its members.
            InvalidInput: this object was copied or unpickled: use `Queue.group`.
        """
        if "_read" not in vars(self):
            raise InvalidInput(f"group {self.id} was read by another program: use group({self.id!r}) of its queue")
        ids: Sequence[str] = vars(self)["_roster"]
        if len(ids) != self.total:
            raise NoResult(
                f"no results of group {self.id} can be read: another program has removed the list of its members"
            )
        for start in range(0, len(ids), RESULTS_A_TRIP):
            for value in vars(self)["_read"](ids[start : start + RESULTS_A_TRIP], self.created_at):
                if isinstance(value, DelayqError) and not return_exceptions:
                    raise value
                yield value


def with_results(info: MessageGroupInfo, roster: Sequence[str], read: Callable[..., Any]) -> MessageGroup:
    """Return a group that reads the results of its members.

    Args:
        roster: the ids of its members, in the order in which they were sent.
        read: takes some of these ids and when the group was sent; returns a value or an error for each.
    """
    group = MessageGroup(**{name: getattr(info, name) for name in info.__struct_fields__})
    vars(group).update(_roster=roster, _read=read)
    return group
