"""A live part of a page: only its changed HTML is sent."""

from __future__ import annotations

import re

import msgspec

_PIECE = re.compile(r'<(tr|p|dl) [^>]*\bid="([^"]+)".*?</\1>', re.DOTALL)
"""An element that can be sent alone if nothing else has changed: it has an id, and no element of its kind inside."""


class LivePart(msgspec.Struct, frozen=True):
    """A part, as it was seen.

    Attributes:
        id: the id of its outer element.
        html: the HTML, with that element.
        is_fresh: whether it shows new data, and not an error.
        pieces: its rows, lists of figures and sentences that have an id, by id.
        rest: the HTML without the content of the pieces.
    """

    id: str
    html: str
    is_fresh: bool
    pieces: dict[str, str]
    rest: str

    @classmethod
    def of(cls, part_id: str, html: str, is_fresh: bool = True) -> LivePart:
        """Split a part into pieces."""
        pieces = {match[2]: match[0] for match in _PIECE.finditer(html)}
        return cls(part_id, html, is_fresh, pieces, _PIECE.sub(r"\2", html))

    def since(self, before: LivePart | None) -> list[str]:
        """Return the HTML that has changed since `before`: nothing, some pieces, or the whole part."""
        if before is None or before.rest != self.rest:
            return [self.html]
        return [piece for each, piece in self.pieces.items() if piece != before.pieces[each]]
