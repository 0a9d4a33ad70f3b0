"""States in a user's words: what pages call the structures that hold messages."""

from __future__ import annotations

from markupsafe import Markup

from delayq.model.placement import State

WORDS: dict[State, str] = {
    "pending": "scheduled",
    "ready": "due",
    "unack": "running",
    "retry": "retrying",
    "dead": "dead",
    "garbage": "discarded",
}


def state(name: State, in_title: bool = False) -> Markup:
    """Return the word for a state, which tells the name of its structure to who points at it."""
    word = WORDS[name].capitalize() if in_title else WORDS[name]
    return Markup("{}" if WORDS[name] == name else '<abbr title="{1}">{0}</abbr>').format(word, name)
