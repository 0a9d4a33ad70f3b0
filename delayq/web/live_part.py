"""A part of a page that changes by itself: only the HTML that has changed is sent."""

from __future__ import annotations

import re

import msgspec

_PIECE = re.compile(r'<(tr|p|dl) [^>]*\bid="([^"]+)".*?</\1>', re.DOTALL)
"""What is sent alone when nothing else has changed: it has an id, and none of its kind within."""


class LivePart(msgspec.Struct, frozen=True):
    """A part, as it was seen.

    Attributes:
        id: that of its outer element.
        html: with that element.
        is_fresh: whether it shows what was seen just now, and not why nothing was.
        pieces: its rows, lists of figures and sentences that have an id, by that.
        rest: the HTML without what is in these.
    """

    id: str
    html: str
    is_fresh: bool
    pieces: dict[str, str]
    rest: str

    @classmethod
    def of(cls, part_id: str, html: str, is_fresh: bool = True) -> LivePart:
        """Take a part to pieces."""
        pieces = {match[2]: match[0] for match in _PIECE.finditer(html)}
        return cls(part_id, html, is_fresh, pieces, _PIECE.sub(r"\2", html))

    def since(self, before: LivePart | None) -> list[str]:
        """Return the HTML of what differs from an earlier look: nothing, some pieces, or the whole part."""
        if before is None or before.rest != self.rest:
            return [self.html]
        return [piece for each, piece in self.pieces.items() if piece != before.pieces[each]]
