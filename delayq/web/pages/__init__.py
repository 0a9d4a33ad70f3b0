"""The pages, in the order of their links in the navigation."""

from types import ModuleType

from delayq.web.pages import (
    actions,
    add_schedule,
    change_topics,
    configure,
    consumers,
    dead_letters,
    dead_records,
    edit_dead_letter,
    group,
    login,
    message,
    messages,
    metrics,
    overview,
    queue,
    queue_charts,
    queue_limits,
    schedules,
    send_message,
    server,
    static,
    tasks,
    topic,
    topics,
)

PAGES: tuple[ModuleType, ...] = (
    *(
        static,
        login,
        metrics,
        overview,
        queue,
        configure,
        queue_charts,
        queue_limits,
        messages,
        message,
        edit_dead_letter,
        send_message,
        actions,
        dead_letters,
        schedules,
        add_schedule,
        consumers,
    ),
    *(topics, topic, group, dead_records, change_topics, tasks, server),
)
