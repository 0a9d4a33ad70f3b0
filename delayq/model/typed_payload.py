"""Handlers that say by an annotation what their payload is: it is read as that, and checked, before they run."""

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

from delayq.errors import InvalidInput, PayloadMismatch, UnreadableEnvelope
from delayq.model.delivery import Delivery, Handed
from delayq.model.envelope import RAW, Envelope
from delayq.model.outcome import is_coroutine_function, signature

_ANYTHING = (inspect.Parameter.empty, Any, object)
_MODULES = re.compile(r"\b[A-Za-z_][\w.]*\.(?=\w)")  # before the names in the text of a type
_ORIGINALS: WeakKeyDictionary[Callable[[Any], Any], Any] = WeakKeyDictionary()
_MANY = (list, Sequence, Collection, Iterable)
_PLAIN_MESSAGE = re.compile(r"((\w+\.)*([Ll]ist|Sequence|Collection|Iterable)\[)?(\w+\.)*(Message|Record)\]?")


def adapt(handler: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return what is to be called with a message: the handler itself, unless its first argument has a payload's type.

    ``Message[T]``, or ``Record[T]`` of a topic, is given the message, whose payload is a T; any other type is given the
    payload. T is what msgspec can check: a dataclass, a Struct, a TypedDict, a NamedTuple, a list or a union of these,
    ``dict``, ``bytes`` …

    Raises:
        InvalidInput: the annotation cannot be resolved, or no payload can be read as it.
    """
    takes_message, read = _wanted(handler, _resolved(handler, _annotation(handler)))
    if read is None:
        return handler

    def given(message: Delivery[Any]) -> Any:
        payload = message.read(read)
        return message if takes_message else payload

    if is_coroutine_function(handler):

        async def handle_async(message: Delivery[Any]) -> Any:
            return await handler(given(message))

        return _named_as(handler, handle_async)

    def handle(message: Delivery[Any]) -> Any:
        return handler(given(message))

    return _named_as(handler, handle)


def original(handler: Any) -> Any:
    """Return the handler of which `adapt` has made this one; the same, if it was left as it is."""
    return _ORIGINALS.get(handler, handler) if inspect.isfunction(handler) else handler


def adapt_batch(
    handler: Callable[..., Any],
) -> tuple[Callable[[list[Any]], Any], Callable[[Delivery[Any]], object] | None]:
    """Return what is to be called with a list of messages, and what reads the payload of each before, if anything.

    ``list[Message[T]]`` is given messages whose payload is a T; a list of any other type, the payloads.

    Raises:
        InvalidInput: as `adapt` does; or the annotation is that of a single message, or payload.
    """
    annotation = _resolved(handler, _annotation(handler))
    origin = typing.get_origin(annotation) or annotation
    if any(annotation is anything for anything in _ANYTHING):
        return handler, None
    if origin not in _MANY:
        raise InvalidInput(
            f"{_name(handler)} takes {_said(annotation)}, but a batch is a list: annotate it with list[Message], "
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
    """Return whether a handler takes messages rather than payloads, and what reads those; None for any payload."""
    kind = typing.get_origin(annotation) or annotation
    takes_message = isinstance(kind, type) and issubclass(kind, Handed)
    wanted = (typing.get_args(annotation) or (Any,))[0] if takes_message else annotation
    if isinstance(wanted, typing.TypeVar) or any(wanted is anything for anything in _ANYTHING):
        return True, None
    if _holds_message(wanted):
        raise InvalidInput(
            f"{_name(handler)} takes {_said(annotation)}, which no payload is: annotate it with Message for a "
            "single one; for several at a time, decorate it with @queue.batch_handler() and annotate it with "
            "list[Message]"
        )
    return takes_message, reader(wanted, f"{_name(handler)} takes")


def _holds_message(wanted: Any) -> bool:
    """Whether a type is that of a message, or has one within."""
    kind = typing.get_origin(wanted) or wanted
    return (isinstance(kind, type) and issubclass(kind, Handed)) or any(map(_holds_message, typing.get_args(wanted)))


def _said(wanted: Any) -> str:
    """Return a type as its reader wrote it."""
    return _MODULES.sub("", wanted.__name__ if isinstance(wanted, type) else str(wanted))


def reader(wanted: Any, who: str = "this is") -> Callable[[Envelope], Any]:
    """Return a function that reads an envelope's payload as a type.

    It raises PayloadMismatch, or UnreadableEnvelope for a body that is not the JSON that it says it is.

    Args:
        who: begins the sentence that refuses the type.

    Raises:
        InvalidInput: no payload can be read as the type.
    """
    name = _said(wanted)
    try:
        decode = msgspec.json.Decoder(wanted).decode
        info = msgspec.inspect.type_info(wanted)
        known = not isinstance(info, msgspec.inspect.CustomType)
    except (TypeError, ValueError, NameError, AttributeError) as error:
        raise InvalidInput(f"{who} {name}, as which no payload can be read: {error}") from error
    if not known:
        raise InvalidInput(
            f"{who} {name}, as which no payload can be read: annotate it with Message, or Record, or with a dataclass, "
            "a msgspec Struct or a type of JSON's"
        )

    takes_bytes = _takes_bytes(info)

    def read(envelope: Envelope) -> Any:
        if takes_bytes and envelope.kind != RAW and (wanted is bytes or bytes(envelope.body[:1]) == b'"'):
            # which msgspec would read as base64
            raise PayloadMismatch("the payload is no bytes: it was sent as JSON")
        try:
            return msgspec.convert(envelope.body, wanted) if envelope.kind == RAW else decode(envelope.body)
        except msgspec.ValidationError as error:
            raise PayloadMismatch(f"the payload is no {name}: {error}") from error
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise UnreadableEnvelope(f"the payload is not the JSON that it says it is: {error}") from error

    return read


def _takes_bytes(info: msgspec.inspect.Type) -> bool:
    """Whether a payload as a whole may be bytes. `encode_one` has made base64 text of those within one."""
    if isinstance(info, msgspec.inspect.Metadata):
        return _takes_bytes(info.type)
    if isinstance(info, msgspec.inspect.UnionType):
        return any(map(_takes_bytes, info.types))
    kinds = msgspec.inspect.BytesType | msgspec.inspect.ByteArrayType | msgspec.inspect.MemoryViewType
    return isinstance(info, kinds)


def _annotation(handler: Callable[..., Any]) -> Any:
    """Return the annotation of the first argument, as it stands in the source."""
    found = signature(handler)
    parameters = list(found.parameters.values()) if found else []
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        return Any
    return parameters[0].annotation


def _resolved(handler: Callable[..., Any], annotation: Any) -> Any:
    """Return what an annotation stands for that is a string, or has one within."""
    function = _function(handler)
    names = {"Message": Delivery, **getattr(function, "__globals__", {}), **_locals_around(function)}
    holder = type("Holder", (), {"__annotations__": {"payload": annotation}})
    try:
        return typing.get_type_hints(holder, names, {}, include_extras=True)["payload"]
    except Exception as error:
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", str(annotation))
        if _PLAIN_MESSAGE.fullmatch(text):  # imported for the type checker only, and of no consequence here
            return Any
        raise InvalidInput(
            f"{_name(handler)} takes {text!r}, which cannot be resolved ({error}): import or define it where it is "
            "there at run time, too"
        ) from error


def _function(handler: Any) -> Any:
    """Return the function whose source an annotation stands in; None if there is none."""
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
    """Return the names of the function in which another one was defined, if that one still runs."""
    frame = sys._getframe() if function is not None else None  # noqa: SLF001  # inspect.currentframe is the same
    while frame is not None:
        if function.__code__ in frame.f_code.co_consts:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _name(handler: Any) -> str:
    return f"handler {getattr(handler, '__qualname__', None) or repr(handler)}"


def _named_as(handler: Any, wrapper: Callable[[Any], Any]) -> Callable[[Any], Any]:
    # Without __wrapped__, by which the payload's annotation would be found once more.
    functools.update_wrapper(wrapper, handler, ("__module__", "__name__", "__qualname__", "__doc__"), ())
    del wrapper.__wrapped__  # type: ignore[attr-defined]
    _ORIGINALS[wrapper] = handler
    return wrapper
