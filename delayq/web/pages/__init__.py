"""The pages, in the order of their links in the navigation."""

from importlib import import_module
from types import ModuleType

_NAMES = (
    *("static", "login", "metrics", "overview", "queue", "configure", "queue_charts", "messages"),
    *("message", "edit_dead_letter", "send_message", "actions", "dead_letters", "schedules", "add_schedule"),
    *("consumers", "topics", "topic", "group", "dead_records", "change_topics", "jobs", "server"),
)
PAGES: tuple[ModuleType, ...] = tuple(import_module(f"{__name__}.{name}") for name in _NAMES)
