"""The names of a topic's keys in Redis.

All keys of a shard have the same hash tag, so that a Redis Cluster keeps them on one server:

    delayq:{orders}:topic                     the stream; for the second shard, delayq:{orders#1}:topic
    delayq:{orders}:topic:group:billing:dead  the dead letters of a group
    delayq:{emails}:events                    the ledger of a queue, which is also a topic
"""

from __future__ import annotations

from typing import Any

from delayq.model.validation import check_group_name, check_prefix, check_queue_name


class TopicKeys:
    """The keys of one shard of a topic.

    Args:
        stream: the stream's key, with which the other keys begin.
    """

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.meta = stream + ":meta"
        self.pending = stream + ":pending"
        self.waking = stream + ":waking"
        self.sizes = stream + ":sizes"

    @classmethod
    def of_topic(cls, prefix: str, name: str, shard: int = 0) -> TopicKeys:
        """Return the keys of a topic by its name; raises InvalidName."""
        tag = check_queue_name(name, "topic name") + (f"#{shard}" if shard else "")
        return cls(f"{check_prefix(prefix)}:{{{tag}}}:topic")

    def record(self, record_id: str) -> str:
        """Return the key for the envelope of a record that is not appended yet."""
        return f"{self.stream}:msg:{record_id}"

    def of_group(self, group: str) -> dict[str, Any]:
        """Return the keys of a group by their names in the headers of scripts."""
        return {"buried": self.buried(group), "failures": self.failures(group), "watch": self.watch(group)}

    def buried(self, group: str) -> str:
        """Return the key of a group's dead letters."""
        return f"{self.stream}:group:{check_group_name(group)}:dead"

    def watch(self, group: str) -> str:
        """Return the key for when a group's consumers last looked for records to take over."""
        return f"{self.stream}:group:{check_group_name(group)}:watch"

    def failures(self, group: str) -> str:
        """Return the key for the errors of a group's failed deliveries."""
        return f"{self.stream}:group:{check_group_name(group)}:failures"
