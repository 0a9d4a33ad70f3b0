"""On which kinds of clients a case runs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

FACES = ("redis", "aio")


def give_kinds(metafunc: pytest.Metafunc, variants: Iterable[str]) -> None:
    """Run a test that asks for `kind` on both faces, and outside of `make test` on variants of them, too.

    One that is marked `same_on_all_clients`, as the check of an argument may be, runs on the first face only.
    """
    if "kind" not in metafunc.fixturenames:
        return
    same = metafunc.definition.get_closest_marker("same_on_all_clients") is not None
    others = [] if same else [pytest.param(kind, marks=pytest.mark.full) for kind in variants]
    metafunc.parametrize("kind", [*FACES[: 1 if same else None], *others], indirect=True)
