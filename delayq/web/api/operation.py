"""An operation of the API, and the endpoint that decodes its request and encodes its answer."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from delayq.errors import InvalidInput
from delayq.model.envelope import MAX_DEPTH, nests_too_deep
from delayq.model.text import printable_id
from delayq.web import path_params, request_body
from delayq.web.api.idempotency import KeptAnswers
from delayq.web.api.values import Given
from delayq.web.forms import InvalidField
from delayq.web.request_context import who
from delayq.web.routes import ACT, Page, Right

ROOT = "/api/v1"
MOST_KEY = 255

T = TypeVar("T", bound=msgspec.Struct)


class Nothing(Given):
    """No fields."""


class Operation:
    """One row of the table of operations.

    Args:
        right: `VIEW` if it reads, `ACT` if it may change something.
        path: below `ROOT`, with its parameters in braces.
        run: the function; its signature defines the query, the body and the answer.
        name: its name; that of the function if empty.
        text: its description; the function's docstring if empty.
        action: its name in audit lines; `name` if empty.
        status: the HTTP status of success.
        is_former: whether it only serves programs that know an earlier path.

    Attributes:
        tag: the group on the API page: its module.
        query, body, answer: the structs that it takes and returns.
        parameters: the names of the parameters in its path.
    """

    def __init__(
        self,
        right: Right,
        path: str,
        run: Callable[..., Coroutine[Any, Any, msgspec.Struct]],
        *,
        name: str = "",
        text: str = "",
        action: str = "",
        status: int = 200,
        is_former: bool = False,
    ) -> None:
        hints = get_type_hints(run)
        self.right, self.path, self.run, self.status = right, path, run, status
        self.is_former = is_former
        self.name = name or run.__name__
        self.text = text or inspect.getdoc(run) or ""
        self.action = action or self.name
        self.tag = run.__module__.rpartition(".")[2].replace("_", " ")
        self.query: type[msgspec.Struct] = hints.get("query", Nothing)
        self.body: type[msgspec.Struct] = hints.get("body", Nothing)
        self.answer: type[msgspec.Struct] = hints["return"]
        self.parameters = re.findall(r"\{(\w+)\}", path)
        self._takes = hints.keys() & {"query", "body"}

    @property
    def acts(self) -> bool:
        """Whether it may change something."""
        return self.right is ACT

    @property
    def method(self) -> str:
        """The HTTP method."""
        return "POST" if self.acts else "GET"

    async def answer_to(self, request: Request) -> Response:
        """Run it, and answer."""
        query = _query(request.query_params.multi_items(), self.query)
        if self.acts:
            body = await request_body.read(request)
            given = {"query": query, "body": _body(body, self.body)}
            encoded = await self._acted(request, body, {name: given[name] for name in self._takes})
        else:
            server = path_params.server_of(request) if "server" in self.parameters else None
            work = self.run(request, **{"query": query} if "query" in self._takes else {})
            encoded = encode(await (server.while_it_answers(work) if server else work))
        return Response(encoded, self.status, media_type="application/json")

    async def _acted(self, request: Request, body: bytes, given: dict[str, msgspec.Struct]) -> bytes:
        """Act, unless a request with the same key has already done so. It is never cancelled halfway.

        All operations that act are on a server.
        """

        async def act() -> bytes:
            await path_params.server_of(request).check_answers()
            return encode(await self.run(request, **given))

        key = request.headers.get("idempotency-key")
        if key is None:
            return await act()
        if not (0 < len(key) <= MOST_KEY and key.isprintable()):
            raise InvalidField("Idempotency-Key", f"the header Idempotency-Key is not 1 to {MOST_KEY} characters")
        answers: KeptAnswers = request.app.state.kept_answers
        return await answers.once((who(request), request.url.path, key), request.url.query.encode() + b"\0" + body, act)


class ApiRoute(Page):
    """The route of an operation. Names in its path are quoted once, as in any URL."""

    def __init__(self, operation: Operation) -> None:
        path = ROOT + re.sub(r"\{(\w+)\}", r"{\1:segment}", operation.path)
        name = f"api {operation.name}"
        super().__init__(operation.right, path, operation.answer_to, name=name, for_programs=True)
        self.operation, self.action = operation, operation.action


def _query(items: list[tuple[str, str]], kind: type[T]) -> T:
    given = dict(items)
    if len(given) < len(items):
        twice = next(name for name, count in Counter(name for name, _ in items).items() if count > 1)
        raise InvalidField(twice, f"{twice!r} is given twice")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error) from error


def _body(body: bytes, kind: type[T]) -> T:
    if nests_too_deep(body):
        raise InvalidInput(f"the body nests lists and objects more than {MAX_DEPTH} levels deep: flatten it")
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise invalid(error) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"the body is not valid JSON: {error}") from error


def invalid(error: msgspec.ValidationError) -> InvalidInput:
    """Turn an error of msgspec into one that names the field."""
    text, _, place = str(error).partition(" - at `$")
    path = place.rstrip("`").lstrip(".")
    name = re.search(r"field `(.*)`", text)  # an unknown or missing field
    if name:
        path = f"{path}.{name[1]}" if path else name[1]
    return InvalidField(path, f"{path}: {text.replace('`', '')}") if path else InvalidInput(text.replace("`", ""))


def encode(answer: Any) -> bytes:
    r"""Return JSON; bytes of ids that are not UTF-8 become ``\xff``."""
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:
        return msgspec.json.encode(_printable(answer))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable_id(value)
    if isinstance(value, msgspec.Struct):
        value = {name: each for name in value.__struct_fields__ if (each := getattr(value, name)) is not msgspec.UNSET}
    if isinstance(value, Mapping):
        return {_printable(name): _printable(each) for name, each in value.items()}
    return [*map(_printable, value)] if isinstance(value, list | tuple) else value
