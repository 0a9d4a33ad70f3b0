"""Changes of topics, their records and groups: each reads its form, says what it would do, and does it.

What it is called is a row of `delayq.model.actions`; `delayq.web.pages.change_topics` makes its pages.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from delayq.aio import Topic
from delayq.aio.topic_group import Group
from delayq.model.actions import Action
from delayq.web import audit, forms, path_params
from delayq.web.background_jobs import BackgroundJob, BackgroundJobs, word_of
from delayq.web.groups import group_info, group_of
from delayq.web.request_context import visit, who
from delayq.web.request_jobs import asked_once, shown, start

TOPIC = "/{server:name}/topics/{topic:name}"
GROUP = f"{TOPIC}/groups/{{group:name}}"
"""The paths of pages."""


class Foreseen(NamedTuple):
    """A confirmation: its heading, what the change would do, the text of its button, and the records that it lists."""

    title: str
    subject: str
    sentences: list[str]
    verb: str
    ids: Sequence[str] = ()


class Change(abc.ABC):
    """A change of a topic.

    Attributes:
        action: what it is called.
        path, page: the path of its target, and the name of the page that has its form.
        next_page: the name of the page that says what was done.
        has_result: whether its audit line repeats what was done.
        is_all: whether it acts on all; then `action.confirmed_by` says whose name confirms it.
        about: its target and settings, as audit lines have them.
    """

    action: Action
    path: ClassVar[str] = TOPIC
    page: ClassVar[str] = "topic"
    next_page: ClassVar[str] = "topic"
    is_all = True
    has_result: ClassVar[bool] = False

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.about: dict[str, Any] = {"topic": topic.name}

    @classmethod
    async def of(cls, request: Request) -> Self:
        """Read its form; raises InvalidInput, or a 404 if its target does not exist."""
        change = cls(await path_params.topic_of(request))
        await change.read(visit(request).form)
        return change

    async def read(self, form: QueryParams) -> None:  # noqa: B027  # a change may have none
        """Read its settings; raises InvalidInput."""

    @abc.abstractmethod
    async def foresee(self) -> Foreseen:
        """Say what it would do."""

    def fields(self) -> list[tuple[str, str]]:
        """Return the fields that `read` reads."""
        return []

    @property
    def confirmed_by(self) -> tuple[str, str] | None:
        """Whose name a user has to type to confirm it, such as "group", and this name; None for no name."""
        kind = self.action.confirmed_by
        return (kind, self.about[kind]) if kind and self.is_all else None

    def check(self, form: Mapping[str, str]) -> None:
        """Check what the confirmation adds to the form; raises InvalidInput."""
        if self.confirmed_by is not None:
            forms.check_name(form, *self.confirmed_by)

    async def run(self, request: Request) -> Response:
        """Act; a form that is sent twice acts once."""
        jobs: BackgroundJobs = request.app.state.jobs
        notice = "Already done."
        with jobs.once(word_of(visit(request).form)) as is_new:
            if is_new:
                async with audit.audited(request, self.action.audited, **self.about) as line:
                    notice = await self.act()
                    if self.has_result:
                        line["told"] = notice
        group = self.about["group"] if self.next_page == "group" else None
        return audit.back(request, notice, self.next_page, group=group)

    async def act(self) -> str:
        """Do it, and say what was done."""
        raise NotImplementedError


class GroupChange(Change):
    """A change of a group of a topic, which may not exist."""

    path = GROUP
    page = next_page = "group"

    def __init__(self, topic: Topic, group: Group) -> None:
        super().__init__(topic)
        self.group = group
        self.about["group"] = group.name

    @classmethod
    async def of(cls, request: Request) -> Self:
        topic = await path_params.topic_of(request)
        change = cls(topic, await group_of(request, topic))
        await change.read(visit(request).form)
        return change

    async def foresee(self) -> Foreseen:
        verb = self.action.words.verb
        title, subject = f"{verb} {self.group.name}", f"group of topic {self.topic.name}"
        return Foreseen(title, subject, await self.sentences(), f"{verb} the group")

    async def sentences(self) -> list[str]:
        """Say what it would do; raises a 404 if the group does not exist."""
        await group_info(self.group)
        return [self.action.words.warning]


class JobChange(Change):
    """A change that is a job."""

    @abc.abstractmethod
    def title(self) -> str:
        """Return the title of the job."""

    @abc.abstractmethod
    async def work(self, job: BackgroundJob) -> None:
        """Do the work of the job."""

    def start(self, request: Request, once: str) -> BackgroundJob:
        """Start the job, with audit lines at its start, if it acts on all, and at its end."""
        server, topic = request.path_params["server"], self.topic.name
        job = BackgroundJob(server, "", self.title(), who(request), self.is_all, topic, self.about.get("group", ""))
        return start(request, job, self.work, once, self.action.audited, self.about, is_announced=self.is_all)

    async def run(self, request: Request) -> Response:
        """Start the job; a form that is sent twice leads to the first one."""
        return shown(request, await asked_once(request, lambda once: self.start(request, once)))
