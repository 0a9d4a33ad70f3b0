"""The requests on the HTTP API page run against a dashboard, and get the answers that the page shows."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from delayq.web import Token, app
from tests.harness.pages import blocks, without_variables
from tests.harness.servers import RedisServer
from tests.harness.tree import ROOT
from tests.harness.web.serving import served

TOKEN = "a token that is long enough"  # used only in this test


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on the path")
def test_requests_on_the_page_get_the_answers_that_it_shows(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.web.request_jobs.QUICK_SECONDS", 60.0)  # a job is over before it is shown
    shown = [
        (block, answer) for block, answer in pairwise(blocks(ROOT / "docs" / "http-api.md")) if "curl " in block.text
    ]
    assert len(shown) == 6
    with served(app({"main": redis_server.url}, login=Token(TOKEN))) as address:
        known = os.environ | {"DELAYQ_DASHBOARD_TOKEN": TOKEN, "API": f"{address}/api/v1"}
        for block, answer in shown:
            command = block.text.replace("export API=http://127.0.0.1:8700/api/v1\n", "")
            done = subprocess.run(
                ["sh", "-ec", command], cwd=tmp_path, env=known, capture_output=True, text=True, timeout=60, check=True
            )
            assert answer.language == "json"
            assert without_variables(done.stdout) == without_variables(answer.text), command
