"""Names from other queue libraries: each error says what the thing is called here, or what to do."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Mapping
from typing import Any

import pytest

import delayq
from delayq import Middleware, Queue, aio
from delayq.errors import PayloadNotSerializable
from delayq.model import other_libraries
from delayq.model.delivery import Outgoing

NOWHERE = "redis://127.0.0.1:1/0"  # nothing may connect


def each(words: Mapping[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("word", "meant"), words.items(), ids=words)


faces = pytest.mark.parametrize("face", [delayq, aio], ids=["delayq", "delayq.aio"])


@pytest.fixture
def queue() -> Queue:
    return Queue("emails", url=NOWHERE)


def ended(call: Any) -> Any:
    """What a call of either API returns or raises."""
    return asyncio.run(call) if inspect.iscoroutine(call) else call


def answer(meant: str, form: str = "{}") -> str:
    """The end of the error about a word that means this."""
    return f"did you mean {form.format(meant)}?" if re.fullmatch(r"[\w.]+", meant) else meant


def is_answered(error: BaseException, word: str, meant: str, form: str) -> bool:
    return f"{word!r}: " in str(error) and str(error).endswith(f": {answer(meant, form)}")


@each(other_libraries.SEND)
def test_option_of_a_send(word: str, meant: str, queue: Queue):
    unknown: Any = {word: 1}
    with pytest.raises(TypeError) as caught:
        queue.send("x", **unknown)
    assert is_answered(caught.value, word, meant, "{}=")
    assert word not in Outgoing.__struct_fields__
    assert not meant.isidentifier() or meant in Outgoing.__struct_fields__


@faces
@each(other_libraries.QUEUE)
def test_argument_of_a_queue(word: str, meant: str, face: Any):
    with pytest.raises(TypeError) as caught:
        face.Queue("emails", **{word: 1})
    assert is_answered(caught.value, word, meant, "{}=")
    parameters = inspect.signature(face.Queue).parameters
    assert word not in parameters
    assert not meant.isidentifier() or meant in parameters


@each(other_libraries.CRON)
def test_argument_of_cron(word: str, meant: str, queue: Queue):
    unknown: Any = {word: 1}
    with pytest.raises(TypeError) as caught:
        queue.cron(**unknown)
    assert is_answered(caught.value, word, meant, "{}=")
    parameters = inspect.signature(queue.cron).parameters
    assert word not in parameters
    assert not meant.isidentifier() or meant in parameters


def check_attribute(subject: Any, word: str, meant: str) -> None:
    """Check what an object answers to an attribute, and that what it names exists."""
    with pytest.raises(AttributeError) as caught:
        getattr(subject, word)
    assert is_answered(caught.value, word, meant, "'{}'")
    assert not hasattr(subject, word)
    assert word not in dir(subject)
    for name in meant.split(".") if answer(meant) != meant else ():
        subject = getattr(subject, name)


@faces
def test_subclass_may_have_an_attribute_of_that_name(face: Any):
    word = next(iter(other_libraries.OF_QUEUE))
    subject = type("Own", (face.Queue,), {word: lambda _: "own"})("emails", url=NOWHERE)
    assert (getattr(subject, word)(), word in dir(subject)) == ("own", True)


@faces
@each(other_libraries.OF_QUEUE)
def test_attribute_of_a_queue(word: str, meant: str, face: Any):
    check_attribute(face.Queue("emails", url=NOWHERE), word, meant)


@faces
@each(other_libraries.OF_TASK)
def test_attribute_of_a_task(word: str, meant: str, face: Any):
    def function() -> None: ...

    welcome = face.Queue("emails", url=NOWHERE).task(function)
    check_attribute(welcome, word, meant)
    check_attribute(welcome.options(delay=5), word, meant)


@each(other_libraries.OF_MIDDLEWARE)
def test_attribute_of_middleware(word: str, meant: str):
    check_attribute(Middleware(), word, meant)


@each(other_libraries.OF_DELAYQ)
def test_name_in_the_package(word: str, meant: str):
    check_attribute(delayq, word, meant)
    with pytest.raises(ImportError) as caught:
        exec(f"from delayq import {word}")
    assert is_answered(caught.value, word, meant, "'{}'")


def test_name_in_the_async_package_is_where_the_error_says():
    with pytest.raises(ImportError, match=r"did you mean 'Consumer'\?"):
        exec("from delayq.aio import Worker")
    with pytest.raises(ImportError, match=r"did you mean 'delayq\.RetryAfter'\?"):
        exec("from delayq.aio import Retry")


@pytest.mark.parametrize("table", ["SEND", "QUEUE", "CRON", "OF_QUEUE", "OF_TASK", "OF_MIDDLEWARE", "OF_DELAYQ"])
def test_answers_name_what_exists(table: str, queue: Queue):
    text = " ".join(getattr(other_libraries, table).values())
    assert [name for name in re.findall(r"@?\bqueue\.([a-z_]+)", text) if not hasattr(queue, name)] == []
    assert [name for name in re.findall(r"\bmiddleware\.([a-z_]+)", text) if not hasattr(queue.middleware, name)] == []
    assert [name for name in re.findall(r"\b([A-Z][a-z]\w+)\(", text) if not hasattr(delayq, name)] == []


@faces
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda q: q.send("welcome", 42), r"send\(\) takes one payload .*got 42: write delay= or at=; .*@queue\.task"),
        (lambda q: q.reschedule("a", 60), r"reschedule\(\) takes one id .*got 60: write delay= or at="),
        (lambda q: q.dead.requeue("a", 60), "positional"),
        (lambda q: q.dead.edit("a", "x", {}, 60), "positional"),
    ],
    ids=["send", "reschedule", "requeue", "edit"],
)
def test_delay_is_given_by_name(call: Any, expected: str, face: Any):
    with pytest.raises(TypeError, match=expected):
        ended(call(face.Queue("emails", url=NOWHERE)))


@faces
def test_delay_of_a_record_is_given_by_name(face: Any):
    with pytest.raises(TypeError, match=r"publish\(\) takes one payload .*got 5: write delay= or at="):
        ended(face.Topic("orders", url=NOWHERE).publish({"id": 1}, 5))


def test_function_as_a_payload_is_refused_with_what_to_do(queue: Queue):
    def welcome(user: int) -> None: ...

    with pytest.raises(PayloadNotSerializable, match=r"welcome is a function: register it with @queue\.task"):
        queue.send(welcome)
    with pytest.raises(PayloadNotSerializable, match=r"this is a Task: call its send with its arguments"):
        queue.send(queue.task(welcome))


def test_other_unknown_names_are_refused_as_by_python(queue: Queue):
    with pytest.raises(AttributeError, match=r"^'Queue' object has no attribute 'colour'$"):
        queue.colour  # type: ignore[attr-defined]  # noqa: B018  # on purpose
    with pytest.raises(AttributeError, match=r"^module 'delayq' has no attribute 'Colour'$"):
        delayq.Colour  # noqa: B018  # on purpose
    with pytest.raises(TypeError, match=r"Queue\(\) got an unexpected keyword argument 'colour'$"):
        Queue("emails", colour=1)  # type: ignore[call-arg]  # on purpose


def test_words_cost_a_queue_nothing():
    """Python takes five times as long for an attribute of a class with `__getattr__`."""
    for cls in (Queue, aio.Queue, delayq.Task, Middleware):
        assert not hasattr(cls, "__getattr__"), cls
