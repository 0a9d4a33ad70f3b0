"""Configuring a queue: a form, a preview of the changes and their effects, and then the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import structs
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from delayq.aio import Queue
from delayq.model.configuration import Configuration, changes, configured
from delayq.model.queue_stats import QueueStats
from delayq.model.settings import FIELDS, SETTINGS, Changes
from delayq.operations.configure import check
from delayq.web import audit, path_params, render, tab_counts
from delayq.web.error_pages import back_on
from delayq.web.forms import field
from delayq.web.request_context import visit
from delayq.web.routes import ACT, VIEW, Page


class Change(NamedTuple):
    """A setting with its old and new value, as text."""

    name: str
    old: str
    new: str

    @property
    def text(self) -> str:
        """Both values, for an audit line."""
        return f"{self.name}: {self.old or 'none'} → {self.new or 'none'}"


async def configuration_form(request: Request) -> Response:
    """Show the form with the current settings."""
    queue = await path_params.queue_of(request)
    return await _form(request, queue, _texts(await queue.configuration()))


@back_on(configuration_form)
async def configure(request: Request) -> Response:
    """Show the preview, return to the form, or apply the changes, unless somebody else has configured the queue."""
    queue, form = await path_params.queue_of(request), visit(request).form
    if form.get("act") == "change":
        return await _form(request, queue, {name: form.get(name, "") for name in SETTINGS})
    wanted, old = _wanted(form), await queue.configuration()
    changes = _changes(old, wanted)
    await _check_shards(queue, {each.name: getattr(wanted, each.name) for each in changes})
    if form.get("act") == "apply":
        return await _apply(request, queue, wanted, changes)
    stats, counts = await tab_counts.count(queue)
    return render.page(
        request,
        "configure_preview.html",
        changes=changes,
        settings=SETTINGS,
        warnings=[*_warnings(changes, wanted, stats)],
        fields=[(name, form.get(name, "")) for name in SETTINGS],
        before=_fingerprint(old),
        counts=counts,
    )


async def _form(request: Request, queue: Queue, values: Mapping[str, str]) -> Response:
    _, counts = await tab_counts.count(queue)
    return render.page(request, "configure.html", values=values, settings=SETTINGS, counts=counts)


async def _apply(request: Request, queue: Queue, wanted: Configuration, changes: list[Change]) -> Response:
    notice = "No changes."
    if changes:
        if visit(request).form.get("before") != _fingerprint(await queue.configuration()):
            raise HTTPException(409, "Somebody else has configured the queue: check the preview again.")
        texts = [each.text for each in changes]
        async with audit.audited(request, "configure", queue=queue.name, changes=texts):
            await queue.configure(**{each.name: getattr(wanted, each.name) for each in changes})
        notice = f"{queue.name} is configured: {'; '.join(texts)}."
    return audit.back(request, notice, "queue")


def _wanted(form: Mapping[str, str]) -> Configuration:
    """Read the form; raises InvalidField."""
    stored: Changes = {}
    for name, setting in SETTINGS.items():
        text = form.get(name, "").strip()
        with field(name):
            stored |= setting.stored(setting.parse(text) if text else None)
    return configured([None if value is None else str(value).encode() for value in map(stored.get, FIELDS)])


def _changes(old: Configuration, new: Configuration) -> list[Change]:
    before, after = _texts(old), _texts(new)
    return [Change(name, before[name], after[name]) for name in SETTINGS if before[name] != after[name]]


def _texts(configuration: Configuration) -> dict[str, str]:
    return {name: "" if value is None else str(value) for name, value in structs.asdict(configuration).items()}


def _fingerprint(configuration: Configuration) -> str:
    """Return a text that is the same only for equal configurations."""
    return "; ".join(_texts(configuration).values())


async def _check_shards(queue: Queue, limits: dict[str, Any]) -> None:
    await queue.execute(check, changes(**limits))


def _warnings(changes: list[Change], wanted: Configuration, stats: QueueStats) -> list[str]:
    """Return the effects of a change that its values do not show."""
    changed = {each.name for each in changes}
    found = []
    if "max_dead" in changed and wanted.max_dead is not None and stats.dead > wanted.max_dead:
        found.append(f"The oldest {stats.dead - wanted.max_dead:,} dead letters will be purged within a minute.")
    if "events" in changed:
        kept = "The ledger keeps its entries, but gets no new ones." if wanted.events is None else ""
        found.append(kept or "Each step of a message adds an entry; the oldest entries beyond this number are dropped.")
    if {"max_retries", "backoff"} & changed:
        found.append("Running programs notice this within a minute. Sent messages keep their retries.")
    return found


ROUTES = [
    Page(VIEW, "/{server:name}/queues/{queue:name}/configure", configuration_form, name="configuration-form"),
    Page(ACT, "/{server:name}/queues/{queue:name}/configure", configure, name="configure"),
]
