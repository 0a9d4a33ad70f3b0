"""Handlers annotated with the type of their payload, which is converted and checked before they run."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from delayq.errors import InvalidInput, PayloadMismatch
from delayq.model.delivery import Delivery, Handed
from delayq.model.envelope import RAW, Envelope, decode_json
from delayq.model.outcome import is_coroutine_function, signature

_ANYTHING = (inspect.Parameter.empty, Any, object)
_MODULES = re.compile(r"\b[A-Za-z_][\w.]*\.(?=\w)")  # before the names in the text of a type
_ORIGINALS: WeakKeyDictionary[Callable[[Any], Any], Any] = WeakKeyDictionary()
_READERS: WeakKeyDictionary[Callable[[Any], Any], Callable[[Delivery[Any]], object]] = WeakKeyDictionary()
_MANY = (list, Sequence, Collection, Iterable)
_PLAIN_MESSAGE = re.compile(r"((\w+\.)*([Ll]ist|Sequence|Collection|Iterable)\[)?(\w+\.)*(Message|Record)\]?")


def adapt(handler: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return the function to call with a message: the handler itself, unless an annotation names a payload type.

    A handler of ``Message[T]``, or ``Record[T]`` for a topic, gets the message, with a payload of type T; a handler of
    any other type gets the payload. T is a type that msgspec can check: a dataclass, a Struct, a Pydantic model, a
    TypedDict, a NamedTuple, a list or a union of these, ``dict``, ``bytes`` …

    Raises:
        InvalidInput: the annotation cannot be resolved, or payloads cannot have its type.
    """
    takes_message, read = _wanted(handler, resolved(handler, _annotation(handler), f"{_name(handler)} takes"))
    if read is None:
        return handler

    def given(message: Delivery[Any]) -> Any:
        try:
            payload = message.read(read)
        except PayloadMismatch as error:
            if takes_message or not str(error).endswith("got `object`") or not isinstance(message, Delivery):
                raise
            raise PayloadMismatch(f"{error}; {_spread(handler)}") from error
        return message if takes_message else payload

    if is_coroutine_function(handler):

        async def handle_async(message: Delivery[Any]) -> Any:
            return await handler(given(message))

        return _named_as(handler, reading_first(handle_async, given))

    def handle(message: Delivery[Any]) -> Any:
        return handler(given(message))

    return _named_as(handler, reading_first(handle, given))


def reading_first(handler: Callable[[Any], Any], read: Callable[[Delivery[Any]], object]) -> Callable[[Any], Any]:
    """Return a handler, after noting for `reader_of` that it begins with `read`."""
    _READERS[handler] = read
    return handler


def reader_of(handler: Callable[[Any], Any]) -> Callable[[Delivery[Any]], object]:
    """Return the function by which a handler reads a message before anything else; it raises what that would raise."""
    is_known = inspect.isfunction(handler) or isinstance(handler, functools.partial)
    return _READERS.get(handler, _reads_nothing) if is_known else _reads_nothing


def _reads_nothing(_: Delivery[Any]) -> None:
    pass


def original(handler: Any) -> Any:
    """Return the handler from which `adapt` made this one; the same one if it was not changed."""
    return _ORIGINALS.get(handler, handler) if inspect.isfunction(handler) else handler


def adapt_batch(
    handler: Callable[..., Any],
) -> tuple[Callable[[list[Any]], Any], Callable[[Delivery[Any]], object] | None]:
    """Return the function to call with a list of messages, and the function that reads each payload before, or None.

    A handler of ``list[Message[T]]`` gets messages with a payload of type T; a handler of a list of any other type gets
    the payloads.

    Raises:
        InvalidInput: as for `adapt`; or the annotation is for a single message or payload.
    """
    annotation = resolved(handler, _annotation(handler), f"{_name(handler)} takes")
    origin = typing.get_origin(annotation) or annotation
    if any(annotation is anything for anything in _ANYTHING):
        return handler, None
    if origin not in _MANY:
        raise InvalidInput(
            f"{_name(handler)} takes {said(annotation)}, but a batch is a list: annotate it with list[Message], "
            "list[Message[Order]] or list[Order]"
        )
    takes_messages, read = _wanted(handler, (typing.get_args(annotation) or (Any,))[0])
    if read is None:
        return handler, None

    def given(messages: list[Delivery[Any]]) -> list[Any]:
        return messages if takes_messages else [message.payload for message in messages]

    if is_coroutine_function(handler):

        async def handle_async(messages: list[Delivery[Any]]) -> Any:
            return await handler(given(messages))

        return _named_as(handler, handle_async), lambda message: message.read(read)

    def handle(messages: list[Delivery[Any]]) -> Any:
        return handler(given(messages))

    return _named_as(handler, handle), lambda message: message.read(read)


def _wanted(handler: Callable[..., Any], annotation: Any) -> tuple[bool, Callable[[Envelope], Any] | None]:
    """Return whether a handler takes messages rather than payloads, and the payloads' reader; None for any payload."""
    kind = typing.get_origin(annotation) or annotation
    takes_message = isinstance(kind, type) and issubclass(kind, Handed)
    wanted = (typing.get_args(annotation) or (Any,))[0] if takes_message else annotation
    if isinstance(wanted, typing.TypeVar) or any(wanted is anything for anything in _ANYTHING):
        return True, None
    if holds_message(wanted):
        raise InvalidInput(
            f"{_name(handler)} takes {said(annotation)}, which a payload cannot be: annotate it with Message for a "
            "single message; for several at a time, use @queue.batch_handler() and list[Message]"
        )
    return takes_message, reader(wanted, f"{_name(handler)} takes")


def holds_message(wanted: Any) -> bool:
    """Whether a type is that of a message, or contains one."""
    kind = typing.get_origin(wanted) or wanted
    return (isinstance(kind, type) and issubclass(kind, Handed)) or any(map(holds_message, typing.get_args(wanted)))


def said(wanted: Any) -> str:
    """Return a type as it was written in the source."""
    return _MODULES.sub("", wanted.__name__ if isinstance(wanted, type) else str(wanted))


def _spread(handler: Callable[..., Any]) -> str:
    """Say what a function needs to be called with the fields of an object."""
    taken = signature(handler)
    names = ", ".join(taken.parameters) if taken else ""
    name = getattr(handler, "__name__", "handler")
    return f"the first argument is the whole payload: to call {name}({names}) with an object's fields, use @queue.task"


def reader(wanted: Any, who: str = "this is") -> Callable[[Envelope], Any]:
    """Return a function that reads an envelope's payload as a type.

    It raises PayloadMismatch, or UnreadableEnvelope for a body that is not valid JSON.

    Args:
        who: the beginning of the error message.

    Raises:
        InvalidInput: payloads cannot have the type.
    """
    name = said(wanted)
    decode, info = json_decoder(wanted, f"{who} {name}, which a payload cannot be", "Message, Record, ")
    takes_bytes = _takes_bytes(info)

    def read(envelope: Envelope) -> Any:
        if takes_bytes and envelope.kind != RAW and (wanted is bytes or bytes(envelope.body[:1]) == b'"'):
            # which msgspec would read as base64
            raise PayloadMismatch("the payload is not bytes: it was sent as JSON")
        try:
            if envelope.kind == RAW:
                return msgspec.convert(envelope.body, wanted, dec_hook=_model)
            return decode_json(envelope.body, decode, typed=True)
        except msgspec.ValidationError as error:
            raise PayloadMismatch(f"the payload is not a valid {name}: {error}") from error

    return read


def json_decoder(wanted: Any, wrong: str, others: str = "") -> tuple[Callable[[bytes], Any], msgspec.inspect.Type]:
    """Return the function that decodes JSON as a type, and what msgspec knows of the type.

    Args:
        wrong: the beginning of the error message.
        others: further annotations that are possible, for that message.

    Raises:
        InvalidInput: JSON cannot be decoded as the type.
    """
    try:
        decode = msgspec.json.Decoder(wanted, dec_hook=_model).decode
        info = msgspec.inspect.type_info(wanted)
        known = not isinstance(info, msgspec.inspect.CustomType) or info.cls is object or _is_model(info.cls)
    except (TypeError, ValueError, NameError, AttributeError) as error:
        raise InvalidInput(f"{wrong}: {error}") from error
    if not known:
        raise InvalidInput(
            f"{wrong}: annotate it with {others}a dataclass, a msgspec Struct, a Pydantic model or a JSON type"
        )
    return decode, info


def _is_model(kind: Any) -> bool:
    """Whether a type is a Pydantic model. Pydantic itself is not required."""
    return callable(getattr(kind, "model_validate_json", None))


def _model(kind: type[Any], value: Any) -> Any:
    """Read a Pydantic model, or any object; what is wrong is said without the value, as msgspec says it."""
    if kind is object:
        return value
    if not _is_model(kind) or isinstance(value, bytes):
        raise TypeError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")
    try:
        return kind.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        found = error.errors(include_url=False, include_context=False, include_input=False)
        said = (f"{each['msg']} ({'.'.join(map(str, each['loc']))})" if each["loc"] else each["msg"] for each in found)
        raise ModelError("; ".join(said), found[0]["loc"], found[0]["type"], _declared(kind)) from None


def _declared(kind: type[Any]) -> frozenset[str]:
    """Return the names of all fields of a Pydantic model and of those within it; none if it cannot say them."""
    try:
        schema = kind.model_json_schema()
    except Exception:  # noqa: BLE001  # such as for a type of the program that has no schema
        return frozenset()
    return frozenset(
        name for each in (schema, *schema.get("$defs", {}).values()) for name in each.get("properties", ())
    )


class ModelError(ValueError):
    """Why a value is not a Pydantic model.

    Attributes:
        path: names and positions that lead to the first wrong field.
        kind: Pydantic's name for what is wrong with it, such as ``int_type``; it never contains the value.
        declared: the names of fields that may be shown: any other name in the path is data.
    """

    def __init__(self, text: str, path: Sequence[str | int], kind: str, declared: frozenset[str]) -> None:
        super().__init__(text)
        self.path = path
        self.kind = kind
        self.declared = declared


def _takes_bytes(info: msgspec.inspect.Type) -> bool:
    """Whether a payload as a whole may be bytes. Bytes inside a payload were sent as base64 text."""
    if isinstance(info, msgspec.inspect.Metadata):
        return _takes_bytes(info.type)
    if isinstance(info, msgspec.inspect.UnionType):
        return any(map(_takes_bytes, info.types))
    kinds = msgspec.inspect.BytesType | msgspec.inspect.ByteArrayType | msgspec.inspect.MemoryViewType
    return isinstance(info, kinds)


def _annotation(handler: Callable[..., Any]) -> Any:
    """Return the annotation of the first argument, as written in the source."""
    found = signature(handler)
    parameters = list(found.parameters.values()) if found else []
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        return Any
    return parameters[0].annotation


def resolved(handler: Callable[..., Any], annotation: Any, who: str) -> Any:
    """Resolve an annotation of a function that is a string or contains one.

    Args:
        who: the beginning of the error message.

    Raises:
        InvalidInput: it names what does not exist.
    """
    function = _function(handler)
    names = {"Message": Delivery, **getattr(function, "__globals__", {}), **_locals_around(function)}
    holder = type("Holder", (), {"__annotations__": {"payload": annotation}})
    try:
        return typing.get_type_hints(holder, names, {}, include_extras=True)["payload"]
    except Exception as error:
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", str(annotation))
        if _PLAIN_MESSAGE.fullmatch(text):  # imported only for the type checker, and not needed here
            return Any
        raise InvalidInput(
            f"{who} {text!r}, which cannot be resolved ({error}): import or define it so that it exists at run time"
        ) from error


def _function(handler: Any) -> Any:
    """Return the function whose source holds the annotation; None if there is none."""
    while not inspect.isfunction(handler):
        if isinstance(handler, functools.partial):
            handler = handler.func
        elif inspect.ismethod(handler):
            handler = handler.__func__
        else:
            call = type(handler).__call__ if callable(handler) else None
            return call if inspect.isfunction(call) else None
    function = inspect.unwrap(handler)
    return function if inspect.isfunction(function) else None  # what it wraps may be written in C


def _locals_around(function: Any) -> dict[str, Any]:
    """Return the local names of the function in which this one was defined, if it is still running."""
    frame = sys._getframe() if function is not None else None  # noqa: SLF001  # inspect.currentframe is the same
    while frame is not None:
        if function.__code__ in frame.f_code.co_consts:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _name(handler: Any) -> str:
    return f"handler {getattr(handler, '__qualname__', None) or repr(handler)}"


def _named_as(handler: Any, wrapper: Callable[[Any], Any]) -> Callable[[Any], Any]:
    # Without __wrapped__, which would lead to the payload's annotation a second time.
    functools.update_wrapper(wrapper, handler, ("__module__", "__name__", "__qualname__", "__doc__"), ())
    del wrapper.__wrapped__  # type: ignore[attr-defined]
    _ORIGINALS[wrapper] = handler
    return wrapper
