"""Renders templates."""

from __future__ import annotations

import datetime as dt
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

import delayq
from delayq.model.actions import ACTIONS, DEAD_ACTIONS, GROUP_ACTIONS, RECORD_ACTIONS, SCHEDULE_ACTIONS
from delayq.model.health import lag_text
from delayq.model.outcome import cause
from delayq.model.show import or_dash, plural, show_away, show_count, show_duration, show_per_second, show_size
from delayq.model.text import printable
from delayq.web import states
from delayq.web.filters import quoted, unquoted
from delayq.web.path_params import may_hold_password
from delayq.web.payloads import preview, value_of
from delayq.web.redaction import Redaction
from delayq.web.request_context import SAFE, root_of, visit

MOST_ID = 36  # characters of an id in a list: as many as a UUID has


class NavLink(NamedTuple):
    """A link that base.html shows.

    Attributes:
        title: the text.
        route: the name of the page's route.
    """

    title: str
    route: str


def page(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """Return a page, with the notice of the last action and the reason why a form was refused."""
    session, refusal = visit(request).session, visit(request).refusal
    notice, session.notice = session.notice, ""
    text = render(request, template, notice=notice, **context)
    return HTMLResponse(text, refusal.status, refusal.headers) if refusal else HTMLResponse(text, status)


def render(request: Request, template: str, **context: Any) -> str:
    """Render a template with the variables that all templates share."""
    seen, state = visit(request), request.app.state
    is_shown = seen.user and not may_hold_password(request)  # strangers do not learn which paths have a route
    place = request.path_params if is_shown else {}
    known = {
        "request": request,
        "url": lambda name, **parameters: url(request, name, **parameters),
        "asset": lambda file: asset(request, file),
        "token": seen.token,
        "user": seen.user,
        "may_act": seen.may_act,
        "read_only": state.read_only,
        "has_logout": state.has_logout and seen.user is not None,
        "servers": list(state.servers) if seen.user else [],
        "nav": state.nav,
        "tabs": state.tabs,
        "counts": {},
        "server": place.get("server"),
        "queue": place.get("queue"),
        "topic": place.get("topic"),
        "group": place.get("group"),
        "patience": state.patience,
        "notice": "",
        "error": None,
        "refusal": seen.refusal,
        "typed": lambda name, default="": typed(request, name, default),
        "ticked": seen.form.getlist("ids") if seen.refusal else [],
    }
    text = _environment().get_template(template).render(known | context)
    return text.encode(errors="backslashreplace").decode()  # a name in the request may not be UTF-8


def redaction(request: Request) -> Redaction:
    """Return the redaction of this dashboard."""
    found: Redaction = request.app.state.redaction
    return found


def typed(request: Request, name: str, default: str) -> str:
    """Return the content of a field of a refused form; the default if there was no such form or field."""
    if visit(request).refusal is None:
        return default
    fields = request.query_params if request.method == "GET" else visit(request).form
    return fields.get(name, default)


def url(request: Request, name: str, **parameters: Any) -> str:
    """Return the path of a route for a link, under the prefix where the dashboard is mounted."""
    path = request.app.state.route_by_name[name].url_path_for(name, **parameters)  # app.url_path_for tries them all
    return f"{root_of(request)}{quote(path, safe=SAFE)}"


def query(**parameters: Any) -> str:
    """Return the query of a link, without parameters that are None or empty."""
    return urlencode({name: value for name, value in parameters.items() if value not in (None, "")}, doseq=True)


def asset(request: Request, file: str) -> str:
    """Return the path of a static file, which changes when its content does."""
    return f"{url(request, 'static', file=file)}?{digest(file)}"


@cache
def digest(file: str) -> str:
    """Return the digest of a static file's content."""
    return hashlib.sha256(files("delayq.web").joinpath("static", file).read_bytes()).hexdigest()[:12]


def short(message_id: str) -> str:
    """Return an id, without its middle if it is long."""
    return (
        message_id if len(message_id) <= MOST_ID else f"{message_id[: MOST_ID // 2 - 1]}…{message_id[-MOST_ID // 2 :]}"
    )


def moment(at: dt.datetime | None, now: dt.datetime | None = None) -> Markup:
    """Return a time in UTC as a time element and, with `now`, how far it is from now."""
    if at is None:
        return Markup("–")
    shown = at.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
    away = "" if now is None else Markup(' <span class="away">{}</span>').format(show_away(at, now))
    return Markup('<time datetime="{}">{}</time>{}').format(at.isoformat(), shown, away)


def clock(at: dt.datetime, seconds: bool = False) -> str:
    """Return the time of day, in UTC."""
    return at.astimezone(dt.UTC).strftime("%H:%M:%S" if seconds else "%H:%M")


def lines(text: str) -> Markup:
    """Return a text of several lines with hidden characters escaped."""
    return escape(printable(text, keep="\n\t"))


def _shown(value: Any) -> Any:
    """Escape hidden characters in all that templates write; values that forms send back go through ``exact`` first."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("delayq.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {"number": or_dash(show_count), "plural": plural, "lag": lag_text}
    environment.filters |= {"rate": or_dash(show_per_second), "span": or_dash(show_duration)}
    environment.filters |= {"moment": moment, "away": show_away, "clock": clock}
    environment.filters |= {"quoted": quoted, "unquoted": unquoted, "exact": escape, "lines": lines}
    environment.filters |= {"size": or_dash(show_size), "short": short}
    environment.filters |= {"state": states.state}
    environment.globals |= {
        "cause": cause,
        "actions": ACTIONS,
        "group_actions": GROUP_ACTIONS,
        "dead_actions": DEAD_ACTIONS,
        "record_actions": RECORD_ACTIONS,
        "schedule_actions": SCHEDULE_ACTIONS,
        "preview": preview,
        "value_of": value_of,
        "state_words": states.WORDS,
        "phases": states.PHASES,
    }
    environment.globals |= {"query": query, "version": delayq.__version__}
    return environment
