"""The pages, in the order of their entries in the navigation."""

from types import ModuleType

from delayq.web.pages import (
    actions,
    add_schedule,
    change_groups,
    change_records,
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
    server_consumers,
    server_schedules,
    tasks,
    topic,
    topics,
)

PAGES: tuple[ModuleType, ...] = (
    *(
        login,
        metrics,
        overview,
        queue,
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
    *(server_schedules, server_consumers),
    *(topics, topic, group, dead_records, change_groups, change_records, tasks, server),
)
