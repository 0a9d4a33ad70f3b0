"""`tests.dealing`: a test that ends its process costs its own result, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

CONFTEST = "from tests.conftest import pytest_xdist_make_scheduler"
TESTS = """
import os
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(12))
def test_number(number):
    Path("ran", f"{{number}}-{{os.getpid()}}").touch()
    if number in {fatal}:
        os._exit(1)
"""


def test_all_but_the_fatal_tests_pass_and_each_runs_once(tmp_path: Path) -> None:
    fatal = (4, 11)
    (tmp_path / "ran").mkdir()
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_numbers.py").write_text(TESTS.format(fatal=fatal))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DELAYQ_"))}
    words = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        words, cwd=tmp_path, env=kept | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "2 failed, 10 passed" in done.stdout
    assert all(f"crashed while running 'test_numbers.py::test_number[{number}]'" in done.stdout for number in fatal)
    ran = [int(path.name.partition("-")[0]) for path in (tmp_path / "ran").iterdir()]
    assert sorted(ran) == list(range(12))
