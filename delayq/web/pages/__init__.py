"""The pages, in the order of their entries in the navigation."""

from types import ModuleType

from delayq.web.pages import (
    actions,
    consumers,
    dead,
    editing,
    entering,
    group,
    message,
    messages,
    metrics,
    overview,
    queue,
    schedules,
    server,
    tasks,
    topic,
    topics,
)

PAGES: tuple[ModuleType, ...] = (
    *(entering, metrics, overview, queue, messages, message, editing, actions, dead, schedules, consumers),
    *(topics, topic, group, tasks, server),
)
