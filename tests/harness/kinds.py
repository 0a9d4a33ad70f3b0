"""The kinds of clients on which a case runs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.harness.versions import THIRD

FACES = ("redis", "aio")


def give_kinds(metafunc: pytest.Metafunc, variants: Iterable[str]) -> None:
    """Run a test that asks for `kind` in both APIs, and except in `make test` also on some variants of them.

    A test marked `same_on_all_clients`, such as the check of an argument, runs only on the first kind.
    """
    if "kind" not in metafunc.fixturenames:
        return
    same = metafunc.definition.get_closest_marker("same_on_all_clients") is not None
    others = [] if same else [pytest.param(kind, marks=THIRD) for kind in variants]
    metafunc.parametrize("kind", [*FACES[: 1 if same else None], *others], indirect=True)
