"""`tests.harness.dealing`: a test that ends its process, or hangs in any kind of wait, affects only its own result."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.harness.tree import ROOT

CONFTEST = "from tests.conftest import pytest_xdist_make_scheduler"
SECONDS = 20
TESTS = """
import ctypes
import os
import time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(12))
def test_number(number):
    Path("ran", f"{{number}}-{{os.getpid()}}").touch()
    if number in {ends}:
        while not all(any(Path("ran").glob(f"{{other}}-*")) for other in {ends}):
            time.sleep(0.01)
        os._exit(1)
    if number in {hangs}:
        ctypes.PyDLL(None).sleep(9999)  # with Python's lock: no other thread goes on
"""


@pytest.mark.full
@pytest.mark.parametrize(("ends", "hangs"), [((4,), (11,)), ((0, 1), ())], ids=["one after the other", "two at once"])
def test_all_other_tests_pass_and_each_runs_once(tmp_path: Path, ends: tuple[int, ...], hangs: tuple[int, ...]) -> None:
    fatal = ends + hangs
    guard = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"] | {"faulthandler_timeout": SECONDS}
    (tmp_path / "ran").mkdir()
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_numbers.py").write_text(TESTS.format(ends=ends, hangs=hangs))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DELAYQ_"))}
    words = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--rootdir", str(tmp_path)]
    words += [f"-o{name}={value}" for name, value in guard.items() if name.startswith("faulthandler")]
    done = subprocess.run(
        words, cwd=tmp_path, env=kept | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "2 failed, 10 passed" in done.stdout
    assert all(f"crashed while running 'test_numbers.py::test_number[{number}]'" in done.stdout for number in fatal)
    ran = [int(path.name.partition("-")[0]) for path in (tmp_path / "ran").iterdir()]
    assert sorted(ran) == list(range(12))
