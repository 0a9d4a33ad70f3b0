"""--url of the commands that look at several servers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import click

from .options import not_empty


class Place(NamedTuple):
    """A server that was given: what it is to be called, None where nobody has said, and its URL."""

    name: str | None
    url: str


def _places(ctx: click.Context, option: click.Parameter, given: Sequence[str]) -> list[Place]:
    for each in given:
        not_empty(ctx, option, each)
    matches = [_NAMED.fullmatch(each) for each in given]
    if any(matches) and not all(matches):
        raise click.BadParameter("some servers have a name and others none: write --url NAME=URL for each")
    places = [
        Place(match["name"], match["url"]) if match else Place(None, each)
        for each, match in zip(given, matches, strict=True)
    ]
    names = [place.name for place in places if place.name is not None]
    if len(set(names)) < len(names):
        raise click.BadParameter("two servers have the same name: give each its own")
    return places


_NAMED = re.compile(r"(?P<name>[\w.-]+)=(?P<url>[a-z0-9+]+://.*)", re.DOTALL)

servers_option = click.option(
    "--url",
    "places",
    multiple=True,
    envvar="DELAYQ_URL",
    show_envvar=True,
    metavar="[NAME=]URL",
    callback=_places,
    help="Of a server, as elsewhere, and what to call it; repeatable. Default: the embedded store in ./.delayq.",
)
"""The function gets `places`, a list of `Place`; an empty one when none was given."""
