"""Fixtures for embedded stores: a folder, and a store whose users and processes are known."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq.transport.embedded import keeper
from tests.harness.servers import short_directory
from tests.harness.stores import Watched, use_program
from tests.harness.versions import VERSIONS
from tests.harness.waiting import eventually


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path for a store. When the test ends, nothing may run on it."""
    parent = short_directory()
    yield parent / "store"
    stores = [lock.parent for lock in parent.rglob(keeper.KEEPER_LOCK)]
    assert all(eventually(Watched(store).is_at_rest) for store in stores), "a server or a keeper outlived the last user"
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture
def watched(folder: Path) -> Iterator[Watched]:
    watched = Watched(folder)
    yield watched
    watched.close()
    assert eventually(watched.is_at_rest), "a server or a keeper outlived the last user"


@pytest.fixture(params=["valkey-9.1", *VERSIONS])
def any_program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_program(monkeypatch, request.param)
    version: str = request.param
    return version
