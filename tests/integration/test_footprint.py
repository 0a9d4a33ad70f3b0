"""The computed memory is the memory that a server uses."""

from __future__ import annotations

import pytest

from delayq.model.footprint import LAYOUTS, Shape, reserved, waiting
from tests.conftest import StartServer
from tests.harness.footprints import used_by

COUNT = 60_000  # just below a power of two: no hash table is growing

pytestmark = pytest.mark.full

each_version = pytest.mark.parametrize("version", LAYOUTS)


@each_version
@pytest.mark.parametrize(
    "shape",
    [Shape(20), Shape(100), Shape(300), Shape(2000), Shape(100, queue="q", prefix="p", id=36)],
    ids=["20", "100", "300", "2000", "100 under a long id"],
)
def test_waiting_messages_take_the_computed_memory(version: str, shape: Shape, start_server: StartServer):
    used = used_by(start_server(version), COUNT, shape)
    assert waiting(COUNT, shape, LAYOUTS[version]) == pytest.approx(used, rel=0.05)


@each_version
def test_reserved_ids_take_the_computed_memory(version: str, start_server: StartServer):
    server, shape = start_server(version), Shape(0)
    used = used_by(server, COUNT, shape, unique_for=3600) - used_by(server, COUNT, shape)
    assert reserved(COUNT, shape, LAYOUTS[version]) == pytest.approx(used, rel=0.05)
