"""The dead letters of a group: a list, and a page for each."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from delayq.web import render
from delayq.web.changes import GROUP
from delayq.web.groups import group_info, group_of
from delayq.web.payloads import payload_of_record, preview_of_record
from delayq.web.record_keys import key_of, place_of
from delayq.web.redaction import in_turns
from delayq.web.routes import VIEW, Page

PAGE = 50


async def dead_records(request: Request) -> Response:
    """Show a page of a group's dead letters, the longest dead first."""
    group = await group_of(request)
    asked, redaction = request.query_params.get("after", ""), render.redaction(request)
    info = await group_info(group)
    page = await group.dead_page(place_of(asked) if asked else None, PAGE)
    return render.page(
        request,
        "dead_records.html",
        topic=group.topic,
        group=group.name,
        total=info.dead,
        is_first=not asked,
        letters=await in_turns(
            lambda each: (key_of(each.place), redaction.letter(each), preview_of_record(each.record, redaction)),
            page.letters,
        ),
        after=None if page.after is None else key_of(page.after),
    )


async def dead_record(request: Request) -> Response:
    """Show one dead letter."""
    group = await group_of(request)
    key, redaction = request.path_params["letter"], render.redaction(request)
    letter = await group.get_dead(place_of(key))
    if letter is None:
        raise HTTPException(404, f"Group {group.name} has no dead letter {key}: it may have been requeued or deleted.")
    payload = payload_of_record(letter.record, redaction)
    return render.page(
        request,
        "dead_record.html",
        topic=group.topic,
        group=group.name,
        key=key,
        letter=redaction.letter(letter),
        headers={} if payload["size"] is None else redaction.headers(letter.record.headers),
        payload=payload,
    )


_DEAD = f"{GROUP}/dead"
ROUTES = [
    Page(VIEW, _DEAD, dead_records, name="dead_records"),
    Page(VIEW, f"{_DEAD}/letters/{{letter:name}}", dead_record, name="dead_record"),
]
