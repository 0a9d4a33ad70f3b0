"""A task: a function that runs for the messages that name it, and the arguments that such a message holds."""

from __future__ import annotations

import datetime as dt
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, Final, TypeAlias, TypedDict

import msgspec
from msgspec import UNSET

from delayq.errors import InvalidInput, PayloadMismatch, WrongArguments
from delayq.model.backoff import Backoff, WaitAfterError, seeing_errors
from delayq.model.delivery import Delivery, OnConflict, Outgoing, unknown_option
from delayq.model.envelope import MAX_DEPTH, RAW, Envelope, Headers, decode_json, encode_json
from delayq.model.outcome import Ack, IsNamedTask, KeptValue, is_coroutine_function, signature, would_never_run
from delayq.model.result import KeptFor, TaskResult, encoded_value, failure, missing
from delayq.model.typed_payload import holds_message, json_decoder, reading_first, resolved, said
from delayq.model.units import Seconds
from delayq.model.validation import check_task_name

RetryFor: TypeAlias = type[Exception] | tuple[type[Exception], ...]
_VALUES = frozenset({bool, int, float, str, bytes, list, tuple, dict})  # nobody needs them, so nothing looks at them
_FIELD = re.compile(r"Object (?:missing required|contains unknown) field `(\w+)`")


class Arguments:
    """The arguments of a task, between a call and the payload of a message: an object without those not given.

    Args:
        function: with named parameters only.
        task: its name.

    Raises:
        InvalidInput: it has a parameter that such an object cannot hold.
    """

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        taken = signature(function)
        if taken is None:
            raise InvalidInput(f"task {task!r} is {function!r}, which has no signature: wrap it in a function")
        self._task = task
        self._signature: Final = taken
        fields = [_field(function, parameter, task) for parameter in taken.parameters.values()]
        self._names: Final = frozenset(taken.parameters)
        self._required: Final = frozenset(field[0] for field in fields if len(field) == 2)
        self._positional: Final = [name for name, each in taken.parameters.items() if each.kind != each.KEYWORD_ONLY]
        kind = msgspec.defstruct(task, fields, kw_only=True, forbid_unknown_fields=True)
        self._decode, _ = json_decoder(kind, f"task {task!r} takes what a message cannot hold")
        self._has_defaults: Final = self._required != self._names

    def payload(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload of a call; raises WrongArguments, or PayloadNotSerializable."""
        given = dict(zip(self._positional, args, strict=False))
        is_twice = len(args) > len(self._positional) or not given.keys().isdisjoint(kwargs)
        given.update(kwargs)
        if is_twice or not self._required <= given.keys() <= self._names:
            raise self._unbound(args, kwargs)
        try:
            self._decode(encode_json(given))
        except msgspec.ValidationError as error:
            raise WrongArguments(self._wrong(error)) from error
        return given

    def read(self, envelope: Envelope) -> dict[str, Any]:
        """Return the arguments that a message holds; raises PayloadMismatch, or UnreadableEnvelope."""
        if envelope.kind == RAW:
            raise PayloadMismatch(f"the payload of task {self._task!r} is bytes, not an object of its arguments")
        body, decode = envelope.body, self._decode
        try:  # the short way for nearly all, which cannot nest too deep
            found = decode(body) if len(body) <= MAX_DEPTH else decode_json(body, decode, typed=True)
        except msgspec.ValidationError as error:
            raise PayloadMismatch(self._wrong(error)) from error
        except (msgspec.MsgspecError, UnicodeDecodeError):
            found = decode_json(body, decode)  # which says what is wrong
        given = msgspec.structs.asdict(found)
        return {name: value for name, value in given.items() if value is not UNSET} if self._has_defaults else given

    def _unbound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> WrongArguments:
        """Return the error for arguments that the function does not take, or for missing ones."""
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            names = [name for name in kwargs if name not in self._names] or re.findall(r"'(\w+)'", str(error))
            place = f" - at `$.{names[0]}`" if names else ""
            return WrongArguments(f"the arguments do not match task {self._task!r}: {error}{place}")
        raise AssertionError("it takes these arguments")

    def _wrong(self, error: msgspec.ValidationError) -> str:
        field = _FIELD.fullmatch(str(error))
        place = f" - at `$.{field[1]}`" if field else ""
        return f"the arguments do not match task {self._task!r}: {error}{place}"


def _field(function: Callable[..., Any], parameter: inspect.Parameter, task: str) -> tuple[Any, ...]:
    """Return the field of an argument: its name and type, and UNSET if it may be left out."""
    who = f"task {task!r} takes {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind == parameter.VAR_POSITIONAL else "**"
        raise InvalidInput(f"task {task!r} takes {stars}{parameter.name}: name each of its parameters")
    if parameter.kind == parameter.POSITIONAL_ONLY:
        raise InvalidInput(f"{who} by position only: remove the / from its parameters")
    wanted = Any
    if parameter.annotation is not parameter.empty:
        wanted = resolved(function, parameter.annotation, f"{who} as")
    elif parameter.name in ("self", "cls"):
        raise InvalidInput(
            f"{who}, and a message has no object to call a method of: register the method of an object, as in "
            "queue.task(mailer.send)"
        )
    if holds_message(wanted):
        raise InvalidInput(f"{who} as {said(wanted)}: call delayq.current_message() for the message")
    if wanted is not Any:  # said here, as msgspec does not name the argument
        json_decoder(wanted, f"{who} as {said(wanted)}, which a message cannot hold")
    field = parameter.name, wanted
    return field if parameter.default is parameter.empty else (*field, UNSET)


class TaskDefinition:
    """A function that is registered as a task.

    Args:
        function: plain or async.
        name: None for the function's own.
        backoff: the waits before its retries; None for the queue's.
        retry_for: the errors for which it is retried; None for all.
        options: for its messages, unless they say otherwise: those of `Outgoing`; None for the queue's.

    Raises:
        InvalidInput: naming what is wrong.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        backoff: Backoff | None,
        retry_for: RetryFor | None,
        **options: Any,
    ) -> None:
        chosen = getattr(function, "__name__", "") if name is None else name
        if name is None and not chosen.isidentifier():
            raise InvalidInput(f"task {function!r} has no name of its own: give name=")
        self.name = check_task_name(chosen)
        self.function = function
        self.arguments = Arguments(function, self.name)
        self.backoff: WaitAfterError | None = None if backoff is None else seeing_errors(backoff)
        self.retry_for = None if retry_for is None else _errors(retry_for)
        self.options = {key: value for key, value in options.items() if value is not None}

    @cached_property
    def _read_value(self) -> Callable[[bytes], Any]:
        """Reads what it returned as its annotation says, if a value of that type can be read from JSON."""
        annotation = inspect.signature(self.function).return_annotation
        if annotation in (inspect.Signature.empty, Any, None):
            return decode_json
        who = f"task {self.name!r} returns"
        try:
            return partial(
                decode_json, decode=json_decoder(resolved(self.function, annotation, who), who)[0], typed=True
            )
        except InvalidInput:
            return decode_json

    def returned(self, message_id: str, status: str, result: TaskResult | None, body: bytes | None) -> Any:
        """Return what it returned for a message.

        Args:
            status: what `operations.results` says of the message.
            result, body: its record, and the value, if it has ended.

        Raises:
            TaskFailed, ResultTimeout, NoResult
        """
        if body is not None:
            try:
                return self._read_value(body)
            except msgspec.ValidationError:  # its annotation does not say what it returns
                return decode_json(body)
        if result is not None:
            raise failure(result)
        raise missing(message_id, status, f"task {self.name!r}")

    def outgoing(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> Outgoing:
        """Return the message of a call; raises InvalidInput, WrongArguments or PayloadNotSerializable."""
        if options.get("wait_replicas"):
            raise InvalidInput(
                f"wait_replicas={options['wait_replicas']!r} is not an option of a message: give it to what sends it"
            )
        options = {name: value for name, value in options.items() if name != "wait_replicas"}
        return Outgoing(self.arguments.payload(args, kwargs), task=self.name, **options)

    def handler(self, is_cancelled: Callable[[], bool]) -> Callable[[Delivery[Any]], Any]:
        """Return the function that calls it for a message.

        Args:
            is_cancelled: whether the asyncio task that calls it is being cancelled.
        """
        function, read, is_final = self.function, self.arguments.read, self._is_final

        def arguments_of(message: Delivery[Any]) -> object:
            return message.read(read)

        if is_coroutine_function(function):

            async def handle_async(message: Delivery[Any]) -> Any:
                arguments = message.read(read)
                try:
                    value = await function(**arguments)
                except Exception as error:
                    # Drivers may turn the cancel of a shutdown or a time limit into an error of their own.
                    message.is_final = is_final(error) and not is_cancelled()
                    raise
                return value_kept(message, value)

            return reading_first(handle_async, arguments_of)

        def handle(message: Delivery[Any]) -> Any:
            arguments = message.read(read)
            try:
                value = function(**arguments)
            except Exception as error:
                message.is_final = is_final(error)
                raise
            return value_kept(message, value)

        return reading_first(handle, arguments_of)

    def _is_final(self, error: Exception) -> bool:
        return self.retry_for is not None and not isinstance(error, self.retry_for)


def value_kept(message: Delivery[Any], value: Any) -> Any:
    """Return what a task returned, for its outcome: as it is kept, if it is; raises NotKept if it cannot be."""
    if message.retention is None or isinstance(value, Ack) or would_never_run(value):
        return None if type(value) in _VALUES else value
    return KeptValue(encoded_value(value))


class IsTask(IsNamedTask):
    """What `Queue.task` returns, in either API.

    Attributes:
        definition: the function and how it runs.
        settings: the options of its messages.
    """

    definition: TaskDefinition
    settings: Mapping[str, Any]


def _errors(retry_for: RetryFor) -> tuple[type[Exception], ...]:
    errors = retry_for if isinstance(retry_for, tuple | list) else (retry_for,)
    for each in errors:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise InvalidInput(f"retry_for={retry_for!r} has {each!r}, not a class of exceptions")
    return tuple(errors)


def keeping(options: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the options of a message with a token in `results`, and the token; "" if no result is kept."""
    if options.get("results") is None:
        return options, ""
    kept = KeptFor.of(options["results"])
    return {**options, "results": kept}, kept.token


class SendOptions(TypedDict, total=False):
    """The options of a task's messages: those of `Queue.send`. None means the queue's own setting, not the task's."""

    delay: Seconds | None
    at: dt.datetime | None
    id: str | None
    on_conflict: OnConflict
    expires_in: Seconds | None
    max_retries: int | None
    headers: Headers | None
    unique_for: Seconds | None
    timeout: Seconds | None
    results: Seconds | None
    wait_replicas: int


def check_options(given: Iterable[str]) -> None:
    """Raise TypeError for an option that a task's messages do not have."""
    for name in given:
        if name not in SendOptions.__annotations__:
            raise unknown_option(name, call="options")
