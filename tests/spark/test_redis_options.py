"""A task uses the server of the driver, or none."""

from __future__ import annotations

import pickle
import platform
from pathlib import Path

import pytest

from delayq.errors import InvalidInput
from delayq.spark.redis_options import RedisOptions


def test_task_on_another_machine_does_not_open_an_embedded_store_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "store"
    server = pickle.loads(pickle.dumps(RedisOptions(f"embedded://{folder}")))
    monkeypatch.setattr(platform, "node", lambda: "worker-7")
    for opened in (server.queue, server.topic):
        with pytest.raises(
            InvalidInput, match=r"this task runs on worker-7, but the embedded store is on .*DELAYQ_URL"
        ):
            opened("letters")
    assert not folder.exists()


def test_password_is_not_shown():
    assert repr(RedisOptions("redis://:secret@localhost")) == "<Server redis://:***@localhost>"
