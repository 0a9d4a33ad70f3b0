"""Every type in a signature of the public face can be imported from `delayq` or `delayq.types`."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import delayq
from delayq import aio, errors, types
from delayq.dead_letters import DeadLetters
from delayq.schedules import Schedules
from delayq.topic_group import Group

CLASSES = (
    *(delayq.Queue, delayq.Topic, delayq.Consumer, delayq.TopicConsumer, delayq.Task),
    *(DeadLetters, Schedules, Group),
)
# Made by delayq itself, or for its own use: internals, redis-py's client, and the types that decorators take.
OTHERS = {"Any", "BaseException", "Client", "Count", "Events", "Handler", "Never", "None", "Outcome", "PathLike"}
OTHERS |= {"Pattern", "Queue", "Rate", "Scheduled", "TaskDecorator", "Waits"}
INSIDE = {
    "__init__": {"Executor", "QueueContext", "TaskDefinition", "TopicContext"},
    "execute": {"QueueContext", "TopicContext"},
}
GENERIC = {"Callable", "Concatenate", "Iterable", "Iterator", "Mapping", "Operation", "Program", "Sequence", "Unpack"}


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


def test_types_are_sorted_and_only_types_that_users_write_are_in_both_places():
    assert types.__all__ == sorted(types.__all__)
    assert set(types.__all__) & set(delayq.__all__) == {"Event", "Record", "Sending", "SentMessage"}


def test_dir_shows_the_public_names():
    assert dir(delayq) == sorted(delayq.__all__)


def documented() -> Iterator[tuple[str, str]]:
    """Everything with a public docstring: name and text."""
    for module in (delayq, aio):
        yield module.__name__, module.__doc__ or ""
    for cls in (*CLASSES, aio.Queue, aio.Topic, aio.Consumer, aio.Message, delayq.Message, delayq.Middleware):
        yield cls.__name__, cls.__doc__ or ""
        parts = [(name, part) for name, part in inspect.getmembers(cls) if not name.startswith("_")]
        yield from ((f"{cls.__name__}.{name}", inspect.getdoc(part) or "") for name, part in parts)


def test_name_in_a_docstring_can_be_imported():
    hidden = {
        name: unknown
        for name, text in documented()
        if (unknown := {word for word in re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", text) if not is_public(word)})
    }
    assert hidden == {}


def is_public(name: str) -> bool:
    return any(hasattr(module, name) for module in (delayq, errors, types, builtins))


def test_names_shared_by_the_async_api_are_where_its_docstring_says():
    found = re.findall(r"((?:`\w+`(?:, | and )?)+) of `(delayq(?:\.\w+)?)`", " ".join((aio.__doc__ or "").split()))
    assert len(found) == 2
    homes = {"delayq": delayq, "delayq.types": types}
    assert [
        name for names, home in found for name in re.findall(r"`(\w+)`", names) if not hasattr(homes[home], name)
    ] == []


each_face = pytest.mark.parametrize("face", [delayq, aio], ids=["delayq", "delayq.aio"])


@each_face
@pytest.mark.parametrize("name", ["dead", "schedules", "middleware", "events", "server"])
def test_attributes_of_a_queue_are_documented(face: Any, name: str):
    assert (inspect.getdoc(getattr(face.Queue, name)) or "").endswith(".")


@each_face
def test_defaults_in_a_signature_can_be_typed(face: Any):
    assert "<" not in f"{inspect.signature(face.Queue)}{inspect.signature(face.Topic)}"


def test_sync_and_async_objects_have_different_reprs():
    assert (repr(delayq.Queue("mails")), repr(aio.Queue("mails"))) == ("<Queue mails>", "<aio.Queue mails>")
    assert (repr(delayq.Topic("orders")), repr(aio.Topic("orders"))) == ("<Topic orders>", "<aio.Topic orders>")
