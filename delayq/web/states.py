"""What pages call the structures that hold messages, and the phases that messages go through."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from delayq.model.placement import State

WORDS: dict[State, str] = {
    "pending": "scheduled",
    "ready": "due",
    "unack": "running",
    "retry": "retrying",
    "dead": "dead",
    "garbage": "discarded",
    "held": "held",
}


class Phase(NamedTuple):
    """A count of `QueueStats` and what it counts."""

    name: str
    meaning: str


PHASES: dict[State, Phase] = {
    "pending": Phase("scheduled", "New messages that are not due yet"),
    "ready": Phase("due", "Due messages that wait for a consumer"),
    "unack": Phase("running", "Messages handed out to consumers"),
    "retry": Phase("retrying", "Messages that wait for their next attempt"),
    "dead": Phase("dead", "Messages that failed permanently"),
    "held": Phase("held", "Messages that wait for a group to end"),
}
"""By the states to which their figures link. A due message is in its old structure until a consumer takes messages."""


def state(name: State) -> Markup:
    """Return the word for a state, with the name of its structure as a tooltip."""
    return Markup("{}" if WORDS[name] == name else '<abbr title="{1}">{0}</abbr>').format(WORDS[name], name)
