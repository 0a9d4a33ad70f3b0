"""Tasks: functions that messages call by their names."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import functools
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import delayq
from delayq import Ack, Consumer, Message, Outgoing, Queue, Reject, RetryAfter, backoff
from delayq.errors import InvalidInput, InvalidName, PayloadNotSerializable, WrongArguments
from delayq.operations.unknown_tasks import MOST_NAMES
from tests.contract.conftest import Drain, Make, Now, registered
from tests.harness.awaiting import Awaited


def task(queue: Any, function: Callable[..., Any], **options: Any) -> Any:
    """Register a function as a task; in the async API, it becomes async, and its sends are awaited."""
    if not isinstance(queue, Awaited):
        return queue.task(**options)(function)

    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args, **kwargs)

    return Awaited(queue.target.task(**options)(run), queue._runner)


def having(queue: Any, sender: Any, **options: Any) -> Any:
    """Return a task with options."""
    return (
        Awaited(sender.target.options(**options), queue._runner)
        if isinstance(queue, Awaited)
        else sender.options(**options)
    )


def noting(seen: list[Any]) -> Callable[..., None]:
    """Return a function of one argument that notes it."""

    def note(n: Any) -> None:
        seen.append(n)

    return note


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Order:
    id: int
    lines: list[str]


class Price(msgspec.Struct):
    amount: Decimal


def test_task_is_called_with_the_values_that_were_sent(queue: Queue, drain: Drain):
    seen: list[tuple[Any, ...]] = []

    def book(
        at: dt.datetime, key: uuid.UUID, order: Order, price: Price, level: Level, *, data: bytes = b"", note: str = "-"
    ) -> str:
        seen.append((at, key, order, price, level, data, note))
        return "booked"

    booking = task(queue, book)
    values = (
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        uuid.uuid4(),
        Order(1, ["tea"]),
        Price(Decimal("1.10")),
        Level.HIGH,
    )
    booking.send(*values, data=b"\xff")
    booking.send(*values[:3], level=Level.LOW, price=Price(Decimal(2)))
    assert drain(queue, None, concurrency=1) == 2
    wanted = [(*values, b"\xff", "-"), (*values[:3], Price(Decimal(2)), Level.LOW, b"", "-")]
    assert sorted(seen, key=repr) == sorted(wanted, key=repr)
    assert queue.stats().acked == 2


def test_payload_is_an_object_of_the_given_arguments(queue: Queue):
    def welcome(user_id: int, *, language: str = "en") -> str:
        return f"{language}: {user_id}"

    welcomes = task(queue, welcome)
    sent = welcomes.send(42, language="de")
    welcomes.send(user_id=43)
    waiting = sorted(queue.peek(), key=lambda each: each.payload["user_id"])
    assert [(each.payload, each.task, each.headers) for each in waiting] == [
        ({"user_id": 42, "language": "de"}, "welcome", {}),
        ({"user_id": 43}, "welcome", {}),
    ]
    assert (sent.created, type(sent).__name__) == (True, "SentTask")
    assert queue.get(sent.id) is not None


def test_default_is_the_one_of_the_function_that_runs(make: Make, drain: Drain):
    seen: list[Any] = []
    producer, consumer = make(), make()

    def welcome(user_id: int, *, language: str = "en") -> None:
        raise AssertionError(f"it runs in the other program, for {user_id} in {language}")

    def welcome_now(user_id: int, *, language: str = "de", greeting: str = "Hallo") -> None:
        seen.append((user_id, language, greeting))

    task(producer, welcome).send(1)
    task(consumer, welcome_now, name="welcome")
    drain(consumer, None)
    assert seen == [(1, "de", "Hallo")]


def test_task_can_be_called_as_the_function(queue: Queue):
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    added = queue.task(add)
    result: Any = added(2, b=3)
    assert (result, added.__name__, added.__doc__) == (5, "add", "Add two numbers.")
    assert (added.name, queue.stats().sent) == ("add", 0)


WRONG: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("x",), {}, r"Expected `int`, got `str` - at `\$.user_id`"),
    ((), {}, r"missing a required argument: 'user_id' - at `\$.user_id`"),
    ((1,), {"langage": "de"}, r"got an unexpected keyword argument 'langage' - at `\$.langage`"),
    ((1,), {"user_id": 1}, r"multiple values for argument 'user_id' - at `\$.user_id`"),
    ((1, "de"), {}, "too many positional arguments"),
    ((1,), {"language": 5}, r"Expected `str`, got `int` - at `\$.language`"),
    ((1,), {"tags": ["a", 5]}, r"Expected `str`, got `int` - at `\$.tags\[1\]`"),
]


@pytest.mark.parametrize(("args", "options", "why"), WRONG)
def test_wrong_argument_is_refused_by_name_and_nothing_is_sent(
    queue: Queue, args: tuple[Any, ...], options: dict[str, Any], why: str
):
    def welcome(user_id: int, *, language: str = "en", tags: list[str] | None = None) -> None: ...

    welcomes = task(queue, welcome)
    for call in (welcomes.send, welcomes.message, having(queue, welcomes, delay=5).send):
        with pytest.raises(WrongArguments, match=f"^the arguments do not match task 'welcome': {why}$") as raised:
            call(*args, **options)
        assert isinstance(raised.value, TypeError)
    assert queue.stats().sent == 0


def test_argument_that_json_cannot_hold_is_refused(queue: Queue):
    def measure(value: Any) -> None: ...

    measuring = task(queue, measure)
    for value in (float("nan"), object()):
        with pytest.raises(PayloadNotSerializable):
            measuring.send(value)
    assert queue.stats().sent == 0


FOREIGN: list[tuple[Any, str]] = [
    ({"user_id": "x"}, "Expected `int`, got `str` - at `$.user_id`"),
    ({}, "Object missing required field `user_id` - at `$.user_id`"),
    ({"user_id": 1, "langage": "de"}, "Object contains unknown field `langage` - at `$.langage`"),
    ({"user_id": 1, "order": {"id": 1}}, "Object missing required field `lines` - at `$.order`"),
]


@pytest.mark.parametrize(("payload", "why"), FOREIGN)
def test_message_whose_arguments_do_not_match_is_dead_at_once(queue: Queue, drain: Drain, payload: Any, why: str):
    def welcome(user_id: int, order: Order | None = None) -> None:
        raise AssertionError(f"it must not run for {user_id} and {order}")

    task(queue, welcome)
    queue.send(payload, task="welcome")
    drain(queue, None)
    (dead,) = queue.dead.list()
    error = f"PayloadMismatch: the arguments do not match task 'welcome': {why}"
    assert (dead.reason, dead.error) == ("payload-mismatch", error)


@pytest.mark.parametrize("payload", [b"{}", "x", 5, None, ["a"], [{}]], ids=repr)
def test_payload_that_is_not_an_object_is_refused(queue: Queue, payload: Any):
    with pytest.raises(InvalidInput, match="the payload of task 'welcome' is not an object: give a dict"):
        queue.send(payload, task="welcome")
    with pytest.raises(InvalidName, match="task name"):
        queue.send({}, task="")
    assert queue.stats().sent == 0


def generate() -> Any:
    yield 1


def of_any_number(*ids: int) -> None: ...
def of_any_name(**options: int) -> None: ...
def by_position(id: int, /) -> None: ...
def of_message(message: Message) -> None: ...
def of_messages(messages: list[Message[int]]) -> None: ...
def of_queue(queue: Queue) -> None: ...


class Mailer:
    def send(self, to: str) -> None: ...
    def make(cls) -> None: ...  # noqa: N805  # on purpose


def of_nothing(x: Unheard) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # on purpose


REFUSED: list[tuple[Any, str]] = [
    (of_any_number, r"task 'of_any_number' takes \*ids: name each of its parameters"),
    (of_any_name, "name each of its parameters"),
    (by_position, "task 'by_position' takes 'id' by position only: remove the /"),
    (of_message, r"task 'of_message' takes 'message' as Message: call delayq.current_message\(\)"),
    (of_messages, r"call delayq.current_message\(\)"),
    (of_queue, "task 'of_queue' takes 'queue' as Queue, which a message cannot hold"),
    (of_nothing, "task 'of_nothing' takes 'x' as 'Unheard', which cannot be resolved"),
    (Mailer.send, r"task 'send' takes 'self', .*: register the method of an object, as in queue.task\(mailer.send\)"),
    (Mailer.make, "task 'make' takes 'cls'"),
    (generate, "generator function"),
    (lambda: None, "has no name of its own: give name="),
    (5, "task 5 is not callable"),
]


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize(("function", "why"), REFUSED)
def test_function_that_cannot_be_a_task_is_refused(queue: Queue, function: Any, why: str):
    with pytest.raises(InvalidInput, match=why):
        queue.task(function)


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "a" * 300},
        {"max_retries": -1},
        {"timeout": 0},
        {"expires_in": -1},
        {"backoff": 5},
        {"retry_for": "ValueError"},
        {"retry_for": (ValueError, 5)},
        {"retry_for": BaseException},
    ],
    ids=repr,
)
def test_bad_option_of_a_task_is_refused_when_it_is_registered(queue: Queue, options: dict[str, Any]):
    with pytest.raises(InvalidInput):
        queue.task(**options)(of_nothing_at_all)
    queue.task(of_nothing_at_all)  # it was not registered


def of_nothing_at_all() -> None: ...


@pytest.mark.same_on_all_clients
def test_method_of_an_object_can_be_a_task(queue: Queue):
    queue.task(Mailer().send).send("ann")
    assert [(each.task, each.payload) for each in queue.peek()] == [("send", {"to": "ann"})]


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize("use", ["task", "handler", "batch_handler", "Consumer"])
@pytest.mark.parametrize("has_options", [False, True])
def test_task_is_refused_as_another_function(queue: Queue, make: Make, use: str, has_options: bool):
    tasks = queue.task(name="welcome")(by_name)
    given, other = tasks.options(delay=5) if has_options else tasks, make()
    calls: dict[str, Callable[[Any], Any]] = {
        "task": other.task(name="again"),
        "handler": other.handler,
        "batch_handler": other.batch_handler(),
        "Consumer": lambda function: Consumer(other, function).drain(),
    }
    with pytest.raises(InvalidInput, match=r"is the task 'welcome': use the function itself, welcome.__wrapped__"):
        calls[use](given)
    assert not other.handlers


@pytest.mark.same_on_all_clients
def test_attributes_of_the_function_are_not_those_of_the_task(queue: Queue):
    def work() -> None: ...

    work.name, work.settings, work._send = "other", {"delay": 60}, None  # type: ignore[attr-defined]
    tasks = queue.task(work)
    tasks.send()
    assert (tasks.name, tasks.settings, [each.task for each in queue.peek()]) == ("work", {}, ["work"])


@pytest.mark.same_on_all_clients
def test_second_task_with_a_name_is_refused(queue: Queue):
    queue.task(name="welcome")(of_nothing_at_all)
    with pytest.raises(InvalidInput, match="already has a task 'welcome': give one of them another name="):
        queue.task(name="welcome")(by_name)


def by_name(user_id: int) -> None: ...


@pytest.mark.same_on_all_clients
def test_unknown_option_is_refused(queue: Queue):
    sender = queue.task(by_name)
    with pytest.raises(TypeError, match=r"did you mean delay=\?"):
        sender.options(countdown=5)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(InvalidInput, match="wait_replicas=1 is not an option of a message"):
        sender.options(wait_replicas=1).message(1)


def test_each_message_goes_to_the_function_that_it_names(queue: Queue, drain: Drain):
    seen: list[Any] = []
    add = task(queue, lambda n: seen.append(("add", n)), name="add")
    drop = task(queue, lambda n: seen.append(("drop", n)), name="drop")
    add.send(1)
    drop.send(2)
    queue.send({"n": 3})
    drain(queue, lambda message: seen.append(("handler", message.payload)), concurrency=1)
    assert sorted(seen, key=str) == [("add", 1), ("drop", 2), ("handler", {"n": 3})]


def test_object_is_any_value(queue: Queue, drain: Drain):
    seen: list[Any] = []

    def note(value: object, more: dict[str, object], last: list[object] | None = None) -> None:
        seen.append((value, more, last))

    notes = task(queue, note)
    values = (5, {"a": [1, {"b": None}]}, ["x", 1.5])
    notes.send(*values)
    notes.send({"a": 1}, {})
    drain(queue, None, concurrency=1)
    assert sorted(seen, key=repr) == sorted([values, ({"a": 1}, {}, None)], key=repr)
    assert queue.stats().acked == 2


def test_task_that_returns_unfinished_work_fails(queue: Queue, drain: Drain):
    task(queue, generate_later, name="add").send()
    drain(queue, None)
    (info,) = queue.peek("retry")
    assert info.error == "TypeError: the task returned an object of type generator, which would never run"


def generate_later() -> Any:
    return generate()


@pytest.mark.parametrize("returned", [False, None, 0, "x", {1, 2}], ids=repr)
def test_whatever_a_task_returns_acks_the_message(queue: Queue, drain: Drain, returned: Any):
    task(queue, lambda: returned, name="add").send()
    drain(queue, None)
    assert (queue.stats().acked, queue.stats().nacked) == (1, 0)


def test_task_decides_as_a_handler_does(queue: Queue, drain: Drain, now: Now):
    seen: list[int] = []
    follow = task(queue, noting(seen), name="follow")

    def decide(how: str) -> Any:
        if how == "reject":
            raise Reject("no")
        if how == "later":
            raise RetryAfter(60)
        return Ack(then=[follow.message(7)])

    decides = task(queue, decide)
    for how in ("reject", "later", "then"):
        having(queue, decides, id=how).send(how)
    drain(queue, None, concurrency=1)
    (dead,) = queue.dead.list()
    (later,) = queue.peek("retry")
    assert (dead.id, dead.reason, seen) == ("reject", "no", [7])
    assert later.due_at is not None
    assert (later.id, later.due_at.timestamp() - now() / 1000) == ("later", 60)


def test_options_of_the_message_override_those_of_the_task_and_these_the_queue(queue: Queue, now: Now):
    def work(n: int) -> None: ...

    tasks = task(queue, work, max_retries=7, timeout=60, expires_in=3600)
    tasks.send(1)
    having(queue, tasks, max_retries=1, timeout=None, expires_in=None, delay=5, id="own", headers={"a": 1}).send(2)
    queue.send_many([having(queue, tasks, delay=9, max_retries=None).message(3)])
    plain, own, late = queue.peek()
    assert (plain.max_retries, plain.timeout, plain.expires_at is not None) == (7, 60, True)
    assert (own.id, own.max_retries, own.timeout, own.expires_at, own.headers) == ("own", 1, None, None, {"a": 1})
    assert late.due_at is not None
    assert (late.max_retries, late.task, late.due_at.timestamp()) == (2, "work", now() / 1000 + 9)


def test_task_has_its_own_backoff_and_errors_that_are_not_retried(queue: Queue, drain: Drain, now: Now):
    def fail(how: str) -> None:
        raise {"lost": ConnectionError, "wrong": ValueError}[how]("no")

    fails = task(queue, fail, backoff=backoff.fixed(77), retry_for=(ConnectionError, TimeoutError))
    other = task(queue, lambda: 1 / 0, name="other")
    having(queue, fails, id="lost").send("lost")
    having(queue, fails, id="wrong").send("wrong")
    having(queue, other, id="other").send()
    drain(queue, None, concurrency=1)
    waits = {each.id: each.due_at.timestamp() - now() / 1000 for each in queue.peek("retry") if each.due_at}
    assert waits == {"lost": 77, "other": 1}
    (dead,) = queue.dead.list()
    assert (dead.id, dead.reason, dead.error, dead.attempts) == ("wrong", "not-retried", "ValueError: no", 1)


def test_error_that_is_not_retried_is_logged_with_its_traceback(
    queue: Queue, drain: Drain, caplog: pytest.LogCaptureFixture
):
    seen: list[BaseException | None] = []
    queue.middleware.after_delivery(lambda _, error: seen.append(error))
    task(queue, lambda: 1 / 0, name="divide", retry_for=OSError).send()
    drain(queue, None)
    (line,) = [each for each in caplog.records if each.message.startswith("delivery failed")]
    assert "next=dead" in line.message
    assert line.exc_info is not None
    assert [type(each) for each in seen] == [ZeroDivisionError]


def test_current_message_is_the_one_that_runs(queue: Queue, drain: Drain):
    seen: list[Any] = []

    def note(number: int) -> None:
        message = delayq.current_message()
        assert message is not None
        seen.append((number, message.id, message.task, message.payload))

    notes = task(queue, note)
    having(queue, notes, id="a").send(1)
    having(queue, notes, id="b").send(2)
    queue.send("x", id="c")
    drain(queue, lambda message: seen.append(delayq.current_message() is message), concurrency=1)
    assert delayq.current_message() is None
    assert sorted(seen, key=str) == [(1, "a", "note", {"number": 1}), (2, "b", "note", {"number": 2}), True]


def test_schedule_runs_a_task(queue: Queue, drain: Drain, now: Now):
    seen: list[Any] = []

    def report(pages: int = 1) -> None:
        message = delayq.current_message()
        seen.append((pages, message and message.schedule))

    reports = task(queue, report)
    decorated = getattr(reports, "target", reports)
    queue.cron("@daily", payload={"pages": 2})(decorated)
    queue.cron("@daily", name="short")(decorated)
    drain(queue, None)
    queue.schedules.add("long", "@daily", message=having(queue, reports, max_retries=9).message(3))
    now.later(86400)
    drain(queue, None)
    assert sorted(seen) == [(1, "short"), (2, "report"), (3, "long")]
    assert [each.payload for each in queue.schedules.list()] == [{"pages": 3}, {"pages": 2}, {}]
    with pytest.raises(InvalidInput, match="'report' already has a handler"):
        queue.cron("@hourly")(decorated)


@pytest.mark.parametrize(
    "options", [{"delay": 5}, {"id": "a"}, {"expires_in": 60}, {"on_conflict": "error"}, {"unique_for": 5}], ids=repr
)
def test_option_that_slots_cannot_have_is_refused(queue: Queue, options: dict[str, Any]):
    with pytest.raises(InvalidInput, match=f"the message of a schedule has {next(iter(options))}="):
        queue.schedules.add("daily", "@daily", message=Outgoing({}, **options))
    with pytest.raises(InvalidInput, match="payload=5 and message= exclude each other"):
        queue.schedules.add("daily", "@daily", 5, message=Outgoing({}))
    assert queue.schedules.list() == []


@pytest.mark.same_on_all_clients
def test_schedule_of_a_task_checks_its_arguments(queue: Queue):
    with pytest.raises(WrongArguments, match="user_id"):
        queue.cron("@daily")(queue.task(by_name))
    with pytest.raises(InvalidInput, match="is not a dict of the arguments"):
        queue.cron("@daily", payload=[1])(queue.task(name="other")(by_name))
    with pytest.raises(InvalidInput, match="is not one of queue jobs"):
        queue.cron("@daily")(Queue("others", url="redis://127.0.0.1:1/0").task(of_nothing_at_all))


def waits_of(queue: Queue, drain: Drain, now: Now, count: int) -> list[float]:
    """Return how long a message of an unknown task waits, each time."""
    waits = []
    for _ in range(count):
        drain(queue, lambda _: None)
        (info,) = queue.peek("retry")
        assert info.due_at is not None
        waits.append(info.due_at.timestamp() - now() / 1000)
        now.later(waits[-1])
    return waits


def test_unknown_task_waits_for_a_consumer_that_knows_it_without_using_a_retry(
    make: Make, drain: Drain, now: Now, caplog: pytest.LogCaptureFixture
):
    seen: list[int] = []
    old, new = make(), make()
    tasks = task(new, noting(seen), name="add")
    having(new, tasks, max_retries=0).send(1)
    having(new, tasks, delay=300).send(2)
    assert waits_of(make(), drain, now, 0) == []
    with caplog.at_level(logging.WARNING):
        drain(old, lambda _: None)
        (info,) = old.peek("retry")
        assert info.error is not None
        assert info.error.startswith("UnknownTask: this consumer of queue jobs has no task 'add': ")
        assert "with @queue.task, or with name='add' if the function has another name" in info.error
        assert (info.retries_used, old.stats().dead) == (0, 0)
        now.later(10)
        drain(old, lambda _: None)
    assert [each.message for each in caplog.records] == ["task unknown, retrying queue=jobs task=add minutes=15"]
    now.later(20)
    drain(new, None)
    assert (seen, new.stats().dead) == ([1], 0)


@pytest.mark.parametrize("kind_of_handler", ["plain", "typed", "batch"])
def test_handler_of_no_task_is_never_given_a_message_of_one(make: Make, drain: Drain, now: Now, kind_of_handler: str):
    queue = make()
    seen: list[Any] = []

    def plain(message: Message) -> None:
        seen.append(message)

    def typed(to: str) -> None:
        seen.append(to)

    def batch(messages: list[Message]) -> None:
        seen.extend(messages)

    kinds: dict[str, tuple[Any, Any]] = {
        "plain": (queue.handler, plain),
        "typed": (queue.handler, typed),
        "batch": (queue.batch_handler(), batch),
    }
    registered(queue, *kinds[kind_of_handler])
    queue.send({"to": "a"}, id="a", task="welcome", max_retries=0, results=3600)
    drain(queue, None)
    assert (seen, queue.stats().retry, queue.stats().acked) == ([], 1, 0)
    why = queue.why("a")
    assert "for task welcome, " in why
    assert "UnknownTask: this consumer of queue jobs has no task 'welcome': " in why
    for _ in range(32):
        now.later(30)
        drain(queue, None)
    assert [(each.id, each.reason) for each in queue.dead.list()] == [("a", "unknown-task")]
    assert "with the reason: unknown-task: UnknownTask: " in queue.why("a")
    record: Any = queue.result("a")
    assert (record.status, record.error.reason, record.attempts) == ("dead", "unknown-task", 0)
    assert seen == []


def test_unknown_task_waits_longer_each_time_and_is_dead_after_a_quarter_of_an_hour(
    queue: Queue, drain: Drain, now: Now
):
    queue.send({}, id="a", task="gone", max_retries=0)
    now.later(86400)  # it was late before
    began = now()
    assert waits_of(queue, drain, now, 5) == [10, 20, 40, 60, 60]
    while not queue.dead.list():
        assert now() - began < 961_000
        drain(queue, lambda _: None)
        now.later(10)
    assert now() - began >= 900_000
    (dead,) = queue.dead.list()
    assert (dead.reason, dead.retries_used) == ("unknown-task", 0)
    assert dead.error is not None
    assert dead.error.endswith("no consumer had it for 15 minutes")
    queue.dead.requeue("a")
    drain(queue, lambda _: None)
    assert (queue.stats().retry, queue.stats().dead) == (1, 0)  # and it is given the same time again


@pytest.mark.parametrize("how", ["rescheduled", "buried"])
def test_unknown_message_that_was_put_off_by_hand_is_given_its_time_again(
    queue: Queue, drain: Drain, now: Now, how: str
):
    queue.send({}, id="a", task="gone")
    drain(queue, lambda _: None)
    if how == "rescheduled":
        assert queue.reschedule("a", delay=3600) == "rescheduled"
    else:
        queue.dead.bury("a")
        now.later(3600)
        queue.dead.requeue("a")
    now.later(3600)
    drain(queue, lambda _: None)
    assert (queue.stats().retry, queue.stats().dead) == (1, 0)


def test_message_of_an_unknown_task_uses_up_no_rate(make: Make, drain: Drain, now: Now):
    queue = make(shards=1)
    queue.configure(rate="1/h")
    queue.send({}, task="gone")
    drain(queue, lambda _: None)
    now.later(1)
    queue.send("known")
    seen: list[Any] = []
    drain(queue, lambda message: seen.append(message.payload))
    assert seen == ["known"]


def test_pause_or_outage_does_not_count_as_time_for_a_consumer_that_knows_the_task(make: Make, drain: Drain, now: Now):
    seen: list[int] = []
    old, new = make(), make()
    task(new, noting(seen), name="add").send(1)
    drain(old, lambda _: None)
    now.later(20 * 60)
    drain(old, lambda _: None)
    assert (old.stats().retry, old.stats().dead) == (1, 0)
    now.later(60)
    drain(new, None)
    assert seen == [1]


@pytest.mark.parametrize("max_retries", [0, 2])
@pytest.mark.parametrize("is_known_at_last", [False, True])
def test_message_of_an_unknown_task_expires(
    make: Make, drain: Drain, now: Now, max_retries: int, is_known_at_last: bool
):
    seen: list[int] = []
    old, new = make(), make()
    tasks = task(new, noting(seen), name="add")
    having(new, tasks, expires_in=15, max_retries=max_retries).send(1)
    assert waits_of(old, drain, now, 1) == [10]
    (info,) = old.peek("retry")
    assert (info.attempts, info.retries_used) == (0, 0)
    now.later(6)
    drain(new if is_known_at_last else old, None if is_known_at_last else lambda _: None)
    assert (seen, new.stats().expired, new.stats().dead) == ([], 1, 0)


@pytest.mark.parametrize("max_retries", [0, 2])
def test_started_message_of_an_unknown_task_does_not_expire_and_dies_only_as_such(
    make: Make, drain: Drain, now: Now, max_retries: int
):
    def wait() -> None:
        raise RetryAfter(1, counts=False)

    old, new = make(), make()
    having(new, task(new, wait), expires_in=15, max_retries=max_retries).send()
    drain(new, None)
    while not old.dead.list():
        drain(old, lambda _: None)
        now.later(10)
    (dead,) = old.dead.list()
    assert (dead.reason, dead.attempts, dead.retries_used, old.stats().expired) == ("unknown-task", 1, 0, 0)


def test_backlog_of_an_unknown_task_is_moved_once_a_minute(queue: Queue, drain: Drain, now: Now):
    queue.send({}, task="gone")
    drain(queue, lambda _: None)
    now.later(55)
    queue.send_many([Outgoing({}, task="gone") for _ in range(300)])
    drain(queue, lambda _: None)
    moved = queue.stats().delivered
    for _ in range(5):
        now.later(11)
        drain(queue, lambda _: None)
    assert queue.stats().delivered - moved <= 1  # all others were told to wait for a minute at once
    now.later(6)
    drain(queue, lambda _: None)
    assert queue.stats().delivered - moved >= 300


def test_names_of_unknown_tasks_are_not_remembered_without_end(queue: Queue, drain: Drain):
    queue.send_many([Outgoing({}, task=f"gone-{number}") for number in range(MOST_NAMES + 50)])
    drain(queue, lambda _: None)
    target = getattr(queue, "target", queue)
    assert (len(target._context.unknown_tasks), queue.stats().retry) == (MOST_NAMES, MOST_NAMES + 50)


def test_message_that_failed_before_gets_the_whole_time(make: Make, drain: Drain, now: Now):
    old, new = make(), make(backoff=backoff.fixed(3600))
    tasks = task(new, lambda: 1 / 0, name="divide")
    tasks.send()
    drain(new, None)
    now.later(3600)
    drain(old, lambda _: None)
    (info,) = old.peek("retry")
    assert (info.retries_used, (info.error or "").partition(":")[0]) == (1, "UnknownTask")


def test_batch_handler_gets_no_tasks(queue: Queue, drain: Drain):
    seen: list[Any] = []
    tasks = task(queue, noting(seen), name="add")

    def several(messages: list[Message]) -> None:
        seen.extend(message.payload for message in messages)
        assert delayq.current_message() is None

    if isinstance(queue, Awaited):

        async def await_several(messages: list[Message]) -> None:
            await asyncio.sleep(0)
            several(messages)

        queue.batch_handler(max_wait=0)(await_several)
    else:
        queue.batch_handler(max_wait=0)(several)
    queue.send("plain")
    tasks.send(1)
    queue.send("other")
    queue.send({}, task="gone")
    drain(queue, None, concurrency=1)
    assert sorted(seen, key=str) == [1, "other", "plain"]
    assert queue.stats().retry == 1


def test_handler_that_gets_an_object_names_tasks(queue: Queue, drain: Drain):
    def welcome(to: str, subject: str = "hi") -> None:
        raise AssertionError(f"it must not run for {to} and {subject}")

    queue.send({"to": "ann"})
    drain(queue, welcome)
    (dead,) = queue.dead.list()
    assert dead.error is not None
    assert dead.error.startswith("PayloadMismatch: the payload is not a valid str: Expected `str`, got `object`; the ")
    assert dead.error.endswith("to call welcome(to, subject) with an object's fields, use @queue.task")


def test_why_names_the_task(queue: Queue):
    queue.send({}, id="a", task="welcome")
    assert queue.why("a").startswith("a, for task welcome, ")
