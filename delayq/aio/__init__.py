"""The async API of delayq: the same names, awaited, on redis.asyncio.

What is not awaited is shared: `Outgoing`, `SentMessage`, `backoff` and `content_id` of `delayq`, `MessageInfo` and
`QueueStats` of `delayq.types`, and the errors of `delayq.errors`.
"""

import concurrent.futures.thread  # noqa: F401  # for name lookups; imported early for the reason in `delayq.transport`
from typing import TYPE_CHECKING

from delayq.aio.message import Message, current_message
from delayq.aio.queue import Queue
from delayq.late_import import late_names

if TYPE_CHECKING:
    from delayq.aio.consumer import Consumer
    from delayq.aio.queue_names import queues
    from delayq.aio.task import SentTask, Task
    from delayq.aio.topic import Topic
    from delayq.aio.topic_consumer import TopicConsumer

__getattr__ = late_names(
    __name__,
    Consumer="delayq.aio.consumer",
    SentTask="delayq.aio.task",
    Task="delayq.aio.task",
    Topic="delayq.aio.topic",
    TopicConsumer="delayq.aio.topic_consumer",
    queues="delayq.aio.queue_names",
)

__all__ = [
    "Consumer",
    "Message",
    "Queue",
    "SentTask",
    "Task",
    "Topic",
    "TopicConsumer",
    "current_message",
    "queues",
]
