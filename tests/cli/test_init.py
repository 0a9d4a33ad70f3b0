"""init: a small example, which runs with the commands that are printed, and is written over nothing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import SECONDS, Invoke

FILES = {"emails.py", "signup.py"}


@pytest.fixture
def newcomer(environment: dict[str, str]) -> dict[str, str]:
    """An environment with nothing but what is installed: the store is the embedded one."""
    kept = {name: value for name, value in environment.items() if not name.startswith("DELAYQ_")}
    return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"}


def sh(script: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a script, each line of which must succeed, and return what it writes to stdout."""
    done = subprocess.run(
        ["sh", "-eu", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed_commands(told: str) -> list[str]:
    return [line.strip() for line in told.partition("\nRun it")[2].splitlines()[1:]]


@pytest.mark.parametrize("words", ["", pytest.param("'my shop'/mails", marks=pytest.mark.full)])
def test_what_it_prints_runs_as_it_is_printed(words: str, tmp_path: Path, newcomer: dict[str, str]):
    told = sh(f"delayq init {words}", tmp_path, newcomer)
    commands = printed_commands(told)
    shown = sh("\n".join(commands), tmp_path, newcomer).splitlines()
    assert shown[:2] == ["sent three messages", "welcome, ann@example.org!"]
    assert len(shown) == 5
    assert '"shall we show you around"' in shown[3]
    assert shown[4].startswith("remind-ann ")
    folder = tmp_path / words.replace("'", "")
    assert {path.name for path in folder.glob("*.py")} == FILES
    assert {path.name for path in folder.iterdir()} - FILES - {"__pycache__"} == {".delayq"}


def test_commands_stand_in_the_example_itself(invoke: Invoke, tmp_path: Path):
    commands = printed_commands(invoke("init").stdout)
    assert len(commands) == 3
    told = ast.get_docstring(ast.parse((tmp_path / "emails.py").read_text())) or ""
    indented = [line.strip() for line in told.splitlines() if line.startswith("    ")]
    assert [line.split("  ")[0] for line in indented] == commands


@pytest.mark.parametrize("name", sorted(FILES))
def test_file_that_is_there_is_named_and_nothing_is_written(name: str, invoke: Invoke, tmp_path: Path):
    (tmp_path / name).write_text("mine")
    result = invoke("init")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"delayq: {name} already exists: nothing was written. ")
    assert "delayq init example" in result.stderr
    assert {path.name for path in tmp_path.glob("*.py")} == {name}
    assert (tmp_path / name).read_text() == "mine"


def test_second_time_names_both_files_and_the_folder_that_it_proposes_works(invoke: Invoke, tmp_path: Path):
    assert invoke("init").exit_code == 0
    result = invoke("init")
    assert result.exit_code == 1
    assert "emails.py and signup.py already exist" in result.stderr
    assert invoke("init", "example").exit_code == 0
    assert {path.name for path in (tmp_path / "example").iterdir()} == FILES


def test_link_to_nowhere_is_left_alone(invoke: Invoke, tmp_path: Path):
    (tmp_path / "signup.py").symlink_to(tmp_path / "elsewhere.py")
    assert invoke("init").exit_code == 1
    assert not (tmp_path / "elsewhere.py").exists()


def test_folder_that_cannot_be_made_is_told(invoke: Invoke, tmp_path: Path):
    (tmp_path / "file").write_text("")
    result = invoke("init", "file/example")
    assert result.exit_code == 1
    assert result.stderr == "delayq: cannot write file/example: Not a directory\n"
    assert invoke("init", "file").exit_code == 2
