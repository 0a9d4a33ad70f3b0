"""Actions on messages: on messages given by id, at once, or on all messages that match a filter, as a job."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.model.actions import ACTIONS, UNCHANGED, Action, How, Outcome
from delayq.model.placement import Purgeable
from delayq.model.rate_text import per_second
from delayq.model.text import printable_id
from delayq.web import audit, job_work, path_params, render
from delayq.web.actions import MOST_IDS, ActionRequest, check_state, start
from delayq.web.api.jobs import Job, begun
from delayq.web.api.messages import Filter
from delayq.web.api.operation import Operation
from delayq.web.api.queues import QUEUE
from delayq.web.api.values import Answer, Given, Moment, Name, Seconds, check_confirmed, check_due, check_times
from delayq.web.filters import MessageFilter
from delayq.web.forms import InvalidField, field
from delayq.web.routes import ACT

T = TypeVar("T", bound=Given)


class Ids(Given):
    """The messages to act on: 1 to 500."""

    ids: Annotated[list[Name], Meta(min_length=1, max_length=MOST_IDS)]

    def how(self) -> How:
        """Return the settings of the action; raises InvalidInput."""
        return _how(self)


class IdsAt(Ids):
    """The messages to act on, and their new due time.

    Attributes:
        delay_seconds: from now; or give `at`.
    """

    delay_seconds: Seconds | None = None
    at: Moment | None = None

    def how(self) -> How:
        return How(due=_due(self.delay_seconds, self.at))


class IdsLater(Ids):
    """The dead letters to act on, and their new due time.

    Attributes:
        delay_seconds: from now.
    """

    delay_seconds: Seconds = 0

    def how(self) -> How:
        check_times(delay_seconds=self.delay_seconds)
        return How(delay=self.delay_seconds)


class Matching(Given):
    """The messages to act on: all in a state that match.

    Attributes:
        dry_run: only count the messages.
    """

    filter: Filter
    dry_run: bool = False

    def how(self) -> How:
        """Return the settings of the action; raises InvalidInput."""
        return _how(self)

    def typed(self) -> dict[str, str]:
        """Return what the form of the action shows after a dry run."""
        return {}


class MatchingAt(Matching):
    """The messages to act on, and their new due time.

    Attributes:
        delay_seconds: from now; or give `at`.
    """

    delay_seconds: Seconds | None = None
    at: Moment | None = None

    def how(self) -> How:
        return How(due=_due(self.delay_seconds, self.at))


class MatchingLater(Matching):
    """The dead letters to act on, and how fast to requeue them.

    Attributes:
        delay_seconds: from the requeue of each.
        rate: the maximum rate, such as 100/s or 5/10s; null for no limit.
    """

    delay_seconds: Seconds = 0
    rate: str | None = None

    def how(self) -> How:
        check_times(delay_seconds=self.delay_seconds)
        with field("rate"):
            return How(delay=self.delay_seconds, rate=per_second(self.rate) if self.rate else None)

    def typed(self) -> dict[str, str]:
        return {"delay": f"{self.delay_seconds:.6f}", "rate": self.rate or ""}


class Purge(Given):
    """What to delete.

    Attributes:
        confirm: the name of the queue.
    """

    state: Purgeable
    confirm: str


class Outcomes(Answer):
    __doc__ = "The outcome for each message.\n\nAttributes:\n    outcomes: by id. {}\n    done: {}\n".format(
        " ".join(f'"{name}": {each.about}.' for name, each in UNCHANGED.items() if each.about),
        "how many messages were changed.",
    )

    outcomes: dict[str, Outcome]
    done: int


BODIES: dict[str, tuple[type[Ids], type[Matching]]] = {
    "reschedule": (IdsAt, MatchingAt),
    "requeue": (IdsLater, MatchingLater),
}
"""The bodies of the actions whose settings are not named as in `How`."""


def _body(action: Action, base: type[T]) -> type[T]:
    """Return the body of a request: that of `BODIES`, or `base` with the settings under their names in `How`."""
    if action.name in BODIES or not action.fields:
        return next((each for each in BODIES.get(action.name, ()) if issubclass(each, base)), base)
    fields = [each for each in action.fields if base is Matching or not each.of_matching]
    known = {each.name: (each.name, each.type, each.default) for each in msgspec.structs.fields(How)}
    about = "".join(f"    {each.name}: {each.hint or each.label}\n" for each in fields)
    text = f"{base.__doc__}\n\nAttributes:\n{about}" if base is Ids else f"{base.__doc__}{about}"
    made: Any = msgspec.defstruct(
        f"{base.__name__}{action.name.title()}",
        [known[each.name][:2] if each.is_required else known[each.name] for each in fields],
        bases=(base,),
        kw_only=True,
        namespace={"__doc__": text},
    )
    return made  # type: ignore[no-any-return]


def _how(body: msgspec.Struct) -> How:
    """Return the settings that a body has under their names in `How`."""
    known = How.__struct_fields__
    return How(**{name: getattr(body, name) for name in body.__struct_fields__ if name in known})


def _named(action: Action) -> Operation:
    """Return the operation that acts on named messages."""

    async def run(request: Request, body: Ids) -> Outcomes:
        queue, ids, how = await path_params.queue_of(request), [*dict.fromkeys(body.ids)], body.how()
        act = job_work.acting(queue, ids, action, how, (await queue.stats()).at)
        async with audit.audited(request, action.name, queue=queue.name, ids=[*map(printable_id, ids)]) as line:
            outcomes: dict[str, Any] = await act()
            done = sum(map(action.changes, outcomes.values()))
            line["told"] = f"{done:,} of {len(outcomes):,}"
        return Outcomes(outcomes=outcomes, done=done)

    path = f"messages/{action.name}"
    return _operation(run, f"{action.name}_messages", action, action.about, _body(action, Ids), path)


def _matching(action: Action) -> Operation:
    """Return the operation that starts a job for all messages that match."""

    async def run(request: Request, body: Matching) -> Job:
        queue, how = await path_params.queue_of(request), body.how()
        with field("filter.state"):
            check_state(action, body.filter.state)
        try:
            wanted = body.filter.meant(render.redaction(request))
            asked = ActionRequest(action=action, filter=wanted, how=how, dry=body.dry_run, typed=body.typed())
            return await _begun(request, queue, asked)
        except InvalidField as error:
            name = error.field if error.field in body.__struct_fields__ else f"filter.{error.field}"
            raise InvalidField(name, str(error)) from error

    path, body = f"messages/{action.name}-matching", _body(action, Matching)
    return _operation(run, f"{action.name}_matching", action, action.about_matching, body, path, 202)


def _purge(action: Action) -> Operation:
    """Return the operation that starts a job for all messages of a state."""

    async def run(request: Request, body: Purge) -> Job:
        queue = await path_params.queue_of(request)
        check_confirmed(body.confirm, "queue", queue.name)
        most, up_to = await job_work.extent(queue, body.state)
        wanted = MessageFilter(state=body.state)
        return await _begun(request, queue, ActionRequest(action=action, filter=wanted, most=most, up_to=up_to or 0))

    return _operation(run, f"{action.name}_queue", action, action.about, Purge, action.name, 202)


async def _begun(request: Request, queue: Queue, asked: ActionRequest) -> Job:
    work = asked.work(queue, (await queue.stats()).at)
    return await begun(start(request, queue.name, asked, work, secrets.token_urlsafe()))


def _operation(
    run: Callable[..., Coroutine[Any, Any, msgspec.Struct]],
    name: str,
    action: Action,
    text: str,
    body: type[Given],
    path: str,
    status: int = 200,
) -> Operation:
    run.__annotations__["body"] = body
    return Operation(ACT, f"{QUEUE}/{path}", run, name=name, text=text, action=action.name, status=status)


def _due(delay: float | None, at: dt.datetime | None) -> float | dt.datetime:
    """Return a due time; raises InvalidInput unless one of them is given."""
    check_due(delay, at)
    if at is None and delay is None:
        raise InvalidInput("neither delay_seconds nor at is given: give one of them")
    return at or delay or 0


_OF_IDS = [each for each in reversed(ACTIONS.values()) if each.takes_ids]

OPERATIONS = [*map(_named, _OF_IDS), *map(_matching, _OF_IDS), _purge(ACTIONS["purge"])]
