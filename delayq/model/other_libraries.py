"""Words of other libraries for queues, and what each is here: errors about a name that delayq lacks answer with these.

A value that is a single name means that name here: an argument, an option or an attribute. Any other value is what to
do instead. Programs pay for this only when they are wrong.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, ParamSpec, TypeVar

from delayq.model.show import nearest

CALL = "register the function with @queue.task, and call its send with the arguments"
OWN_QUEUE = "urgent messages need a queue of their own: delayq consume --strict urgent others"
BY_QUEUE = "a message goes to the Queue whose send you call"
NO_SCHEDULER = "consumers run schedules, without a process for them"
RETRIES = "max_retries= says how often, and the backoff= of Queue or @queue.task how soon"

SEND = {
    "countdown": "delay",
    "delay_seconds": "delay",
    "_defer_by": "delay",
    "defer_by": "delay",
    "delay_until": "at",
    "_defer_until": "at",
    "defer_until": "at",
    "eta": "at",
    "message_id": "id",
    "task_id": "id",
    "job_id": "id",
    "_job_id": "id",
    "expires": "expires_in",
    "expiration": "expires_in",
    "_expires": "expires_in",
    "ttl": "expires_in",
    "retries": "max_retries",
    "retry_count": "max_retries",
    "time_limit": "timeout",
    "job_timeout": "timeout",
    "result_ttl": "results",
    "keep_result": "results",
    "meta": "headers",
    "args": CALL,
    "kwargs": CALL,
    "priority": OWN_QUEUE,
    "queue": BY_QUEUE,
    "queue_name": BY_QUEUE,
    "_queue_name": BY_QUEUE,
    "retry": RETRIES,
    "retry_policy": RETRIES,
    "_job_try": RETRIES,
    "link": "return Ack(then=[…]) from the handler",
    "depends_on": "return Ack(then=[…]) from the handler, or use queue.send_group(messages, then=…)",
}
"""Options of a message: of `Queue.send` and `Task.options`, and of ``delayq send``."""

QUEUE = {
    "broker": "url",
    "broker_url": "url",
    "redis_url": "url",
    "connection": "redis",
    "client": "redis",
    "retries": "max_retries",
    "max_tries": "max_retries",
    "visibility_timeout": "lease",
    "namespace": "prefix",
    "host": 'url="redis://HOST:PORT/0"',
    "backend": "results are kept on the queue's own server: @queue.task(results=3600)",
    "result_backend": "results are kept on the queue's own server: @queue.task(results=3600)",
    "default_timeout": "give timeout= to send or @queue.task, or to Consumer for all messages",
    "is_async": "to run messages in a test, use delayq.testing",
    "immediate": "to run messages in a test, use delayq.testing",
}
"""Arguments of `Queue`."""

FIELDS = 'write the fields as in a crontab: @queue.cron("0 9 * * 1-5"), minute first'
CRON = {
    **dict.fromkeys(("second", "minute", "hour", "day", "weekday", "month"), FIELDS),
    **dict.fromkeys(("day_of_week", "day_of_month", "month_of_year"), FIELDS),
    "every": '@queue.cron("every 90s")',
    "schedule": 'give it first, such as @queue.cron("0 9 * * 1-5") or @queue.cron("every 90s")',
    "tz": "timezone",
    "max_tries": "max_retries",
    "retries": "max_retries",
    "args": "give the arguments of a task as payload={…}",
    "kwargs": "give the arguments of a task as payload={…}",
    "unique": "each slot is sent once, however many consumers run",
}
"""Arguments of `Queue.cron`."""

RUN = "run `delayq consume MODULE:QUEUE`, or Consumer(queue).run() in a program"
LATER = "send(payload, delay=…) or send(payload, at=…)"
STARTED = "middleware.on_start"
OF_QUEUE = {
    "enqueue": "send",
    "enqueue_call": CALL,
    "enqueue_job": CALL,
    "enqueue_in": "send(payload, delay=…)",
    "enqueue_at": "send(payload, at=…)",
    "enqueue_many": "send_many",
    "send_task": CALL,
    "put": "send",
    "push": "send",
    "add": "send",
    "delay": CALL,
    "apply_async": CALL,
    "actor": "task",
    "job": "task",
    "every": '@queue.cron("every 90s")',
    "periodic_task": "cron",
    "add_periodic_task": "cron",
    "schedule": f"{LATER} for one message, @queue.cron or queue.schedules.add for repeated ones",
    "revoke": "cancel",
    "abort": "cancel(id, running=True)",
    "delete": "cancel",
    "remove": "cancel",
    "empty": "purge",
    "fetch_job": "get",
    "dequeue": "receive",
    "requeue": "dead.requeue",
    "retry": "raise RetryAfter(seconds) in the handler, or requeue dead letters with queue.dead.requeue",
    "inspect": "stats",
    "control": "cancel, pause, resume and consumers are methods of the queue",
    "worker": RUN,
    "work": RUN,
    "run": RUN,
    "on_startup": STARTED,
    "on_shutdown": "middleware.on_stop",
}
"""Attributes of a queue."""

OF_TASK = {
    "delay": "send",
    "enqueue": "send",
    "kiq": "send",
    "apply": "call the task itself, which runs the function here and now",
    "apply_async": "options(delay=…).send(…)",
    "send_with_options": "options(delay=…).send(…)",
    "kicker": "options(delay=…).send(…)",
    "schedule": "options(delay=…).send(…)",
    "s": "message(…) returns what queue.send_group and Ack(then=[…]) take",
    "si": "message(…) returns what queue.send_group and Ack(then=[…]) take",
    "signature": "message(…) returns what queue.send_group and Ack(then=[…]) take",
    "retry": "raise RetryAfter(seconds)",
    "request": "delayq.current_message() returns the message that runs",
    "AsyncResult": "result",
}
"""Attributes of a task."""

OF_MIDDLEWARE = {
    "on_startup": "on_start",
    "startup": "on_start",
    "before_worker_boot": "on_start",
    "on_shutdown": "on_stop",
    "shutdown": "on_stop",
    "before_process_message": "before_delivery",
    "pre_execute": "before_delivery",
    "on_job_start": "before_delivery",
    "after_process_message": "after_delivery",
    "post_execute": "after_delivery",
    "on_job_end": "after_delivery",
    "on_error": "after_delivery",
    "before_enqueue": "before_send",
    "pre_send": "before_send",
    "after_enqueue": "after_send",
    "post_send": "after_send",
    "on_failure": "after_delivery gets each error, on_dead each message that has used up its retries",
}
"""Attributes of a middleware."""

OF_DELAYQ = {
    "Worker": "Consumer",
    "Retry": "RetryAfter",
    "Celery": "Queue",
    "Broker": "Queue",
    "RedisBroker": "Queue",
    "Huey": "Queue",
    "RedisHuey": "Queue",
    "Client": "Queue",
    "Producer": "Queue",
    "Job": "Message",
    "Ignore": "Reject",
    "get_current_job": "current_message",
    "actor": "@queue.task, of a Queue",
    "job": "@queue.task, of a Queue",
    "shared_task": "@queue.task, of a Queue",
    "cron": "@queue.cron, of a Queue",
    "crontab": '@queue.cron("0 9 * * 1-5"), of a Queue',
    "Scheduler": f"{NO_SCHEDULER}: @queue.cron, of a Queue",
    "group": "queue.send_group(messages)",
    "chord": "queue.send_group(messages, then=…)",
    "chain": "return Ack(then=[…]) from the handler",
    "enqueue": "Queue(name).send(payload)",
    "send": "Queue(name).send(payload)",
}
"""Names in the package."""

CONSUME = "run `delayq consume MODULE:QUEUE`"
COMMANDS = {
    **dict.fromkeys(("worker", "run", "start", "work"), CONSUME),
    "workers": "consumers",
    "beat": f"{NO_SCHEDULER}: `delayq cron list` shows them",
    "scheduler": f"{NO_SCHEDULER}: `delayq cron list` shows them",
    "schedule": "`delayq cron add` for a schedule, `delayq send --delay 10s` for one message",
    "inspect": "run `delayq stats`, `delayq consumers` or `delayq peek QUEUE`",
    "info": "stats",
    "status": "stats",
    "flower": "dashboard",
    "monitor": "run `delayq top` in a terminal, or `delayq dashboard` for a browser",
    "retry": "run `delayq dead requeue QUEUE`",
    "enqueue": "send",
    "push": "send",
    "call": "run `delayq send QUEUE --task NAME '{…}'`",
    "revoke": "cancel",
    "abort": "run `delayq cancel QUEUE ID --running`",
    "delete": "cancel",
    "empty": "purge",
    "suspend": "pause",
    "history": "run `delayq show QUEUE ID --history`",
}
"""Commands."""

SCHEDULES_RUN = "leave it out: every consumer runs schedules"
TARGETS = "give the queues as TARGETs: delayq consume tasks:emails tasks:bills"
IN_BACKGROUND = "let systemd or a container run it, or the shell with &"
OPTIONS = {
    **dict.fromkeys(("-A", "--app"), "give MODULE:QUEUE as TARGET: delayq consume tasks:emails"),
    **dict.fromkeys(("-B", "--beat", "--with-scheduler"), SCHEDULES_RUN),
    **dict.fromkeys(("-Q", "--queues", "--queue"), TARGETS),
    **dict.fromkeys(("-l", "--loglevel"), "--log-level"),
    "-P": "--pool thread or --pool process",
    "-v": "--log-level debug",
    "--verbose": "--log-level debug",
    "-q": "--log-level warning",
    "--quiet": "--log-level warning",
    "-t": "--concurrency",
    "--threads": "--concurrency",
    "--max-jobs": "--concurrency",
    "--workers": "--processes",
    "-w": "--processes",
    "--autoscale": "the number is fixed: give --concurrency, and run more or fewer consumers",
    "--max-tasks-per-child": "--recycle-after",
    "--max-memory-per-child": "--recycle-memory",
    "--time-limit": "--timeout",
    "--task-events": "--events",
    "-E": "--events",
    "-b": "--url",
    "--broker": "--url",
    "--detach": IN_BACKGROUND,
    "-D": IN_BACKGROUND,
    "--logfile": "the log goes to stderr: redirect it",
    "-f": "the log goes to stderr: redirect it",
    "--watch": "--reload",
    "--prefetch-multiplier": "leave it out: a consumer fetches what it can start soon",
}
"""Options of ``delayq consume``. Words of `SEND` are options of ``delayq send``."""

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type[Any])


def unknown_argument(call: str, name: str, words: Mapping[str, str], names: Iterable[str]) -> TypeError:
    """Return the error for a keyword argument that a function lacks, with what it is here or the nearest of `names`."""
    meant = words.get(name) or nearest(name, names)
    remedy = f": {f'did you mean {meant}=?' if meant.isidentifier() else meant}" if meant else ""
    return TypeError(f"{call}() got an unexpected keyword argument {name!r}{remedy}")


def surplus_argument(call: str, takes: str, value: object) -> TypeError:
    """Return the error for a second value without a name: a delay, or what a task of another queue would be sent."""
    remedy = "; if it is an argument of a function, register that with @queue.task" if call == "send" else ""
    return TypeError(f"{call}() takes {takes} without a name, and also got {value!r:.100}: write delay= or at={remedy}")


def answers_arguments(call: str, words: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that is not called often: its error about an unknown keyword argument says what it is here.

    Its signature stays as it is, for type checkers and people.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        names = [name for name in inspect.signature(function).parameters if name != "self"]

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name not in names:
                    raise unknown_argument(call, name, words, names)
            return function(*args, **kwargs)

        return checked

    return decorate


class ForeignWord:
    """An attribute that objects lack: getting it raises an AttributeError that says what it is here.

    A class with ``__getattr__`` would say so too, but Python 3.11 then takes five times as long for each attribute of
    its objects.
    """

    def __init__(self, name: str, meant: str) -> None:
        self._name = name
        self._meant = meant

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(no_attribute(f"{owner.__name__!r} object", self._name, self._meant), name=self._name)


def no_attribute(where: str, name: str, meant: str) -> str:
    """Return the text of an error about an attribute."""
    return f"{where} has no attribute {name!r}: {f'did you mean {meant!r}?' if _is_path(meant) else meant}"


def _is_path(meant: str) -> bool:
    return all(part.isidentifier() for part in meant.split("."))


def answers_attributes(words: Mapping[str, str]) -> Callable[[C], C]:
    """Decorate a class: errors about these attributes, which it lacks, say what they are here."""

    def decorate(cls: C) -> C:
        for name, meant in words.items():
            setattr(cls, name, ForeignWord(name, meant))

        def __dir__(self: object) -> list[str]:  # noqa: N807  # as it is called below
            def is_foreign(name: str) -> bool:  # a subclass may have it
                return name in words and isinstance(inspect.getattr_static(self, name), ForeignWord)

            return [name for name in object.__dir__(self) if not is_foreign(name)]

        setattr(cls, "__dir__", __dir__)  # noqa: B010  # mypy compares it with the one of `type`
        return cls

    return decorate
