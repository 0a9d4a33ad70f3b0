"""What a signature of the public face mentions can be imported from `delayq` or `delayq.types`."""

from __future__ import annotations

import inspect
import re

import delayq
from delayq import types
from delayq.dead_letters import DeadLetters
from delayq.schedules import Schedules
from delayq.topic_group import Group

CLASSES = (delayq.Queue, delayq.Topic, delayq.Consumer, delayq.TopicConsumer, DeadLetters, Schedules, Group)
# Made by delayq itself, or for its own use: the insides, redis-py's client, and what decorators take.
OTHERS = {"Any", "BaseException", "Client", "Count", "Events", "Handler", "None", "Outcome", "PathLike", "Pattern"}
OTHERS |= {"Pool", "Queue", "Rate"}
INSIDE = {"__init__": {"Executor", "QueueContext", "TopicContext"}, "execute": {"QueueContext", "TopicContext"}}
GENERIC = {"Callable", "Concatenate", "Iterable", "Iterator", "Mapping", "Operation", "Program", "Sequence"}


def test_every_type_in_a_signature_has_a_public_name():
    public = {*delayq.__all__, *types.__all__} | OTHERS | GENERIC
    hidden = {
        f"{cls.__name__}.{name}": unknown
        for cls in CLASSES
        for name, function in inspect.getmembers(cls, inspect.isfunction)
        if (name == "__init__" or not name.startswith("_"))
        and (
            unknown := {
                word
                for annotation in function.__annotations__.values()
                for word in re.findall(r"[A-Z]\w+", str(annotation))
            }
            - public
            - INSIDE.get(name, set())
        )
    }
    assert hidden == {}


def test_types_are_sorted_and_none_stands_in_both_places_but_what_users_type():
    assert types.__all__ == sorted(types.__all__)
    assert set(types.__all__) & set(delayq.__all__) == {"Event", "Record", "Sending", "SentMessage"}


def test_dir_shows_the_public_names():
    assert dir(delayq) == sorted(delayq.__all__)
