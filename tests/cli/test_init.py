"""init writes a small example that runs with the printed commands, and overwrites nothing."""

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
    """An environment with only what is installed, and with the embedded store."""
    kept = {name: value for name, value in environment.items() if not name.startswith("DELAYQ_")}
    return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"}


def sh(script: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a script whose lines must all succeed, and return its stdout."""
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


def printed_commands(printed: str) -> list[str]:
    return [line.strip() for line in printed.partition("\nRun it")[2].splitlines()[1:]]


@pytest.mark.parametrize("words", ["", pytest.param("'my shop'/mails", marks=pytest.mark.full)])
def test_printed_commands_run_as_printed(words: str, tmp_path: Path, newcomer: dict[str, str]):
    report = sh(f"delayq init {words}", tmp_path, newcomer)
    commands = printed_commands(report)
    shown = sh("\n".join(commands), tmp_path, newcomer).splitlines()
    assert shown[:2] == ["sent three messages", "welcome, ann@example.org!"]
    assert len(shown) == 5
    assert '"shall we show you around"' in shown[3]
    assert shown[4].startswith("remind-ann ")
    folder = tmp_path / words.replace("'", "")
    assert {path.name for path in folder.glob("*.py")} == FILES
    assert {path.name for path in folder.iterdir()} - FILES - {"__pycache__"} == {".delayq"}


def test_example_contains_the_commands(invoke: Invoke, tmp_path: Path):
    commands = printed_commands(invoke("init").stdout)
    assert len(commands) == 3
    text = ast.get_docstring(ast.parse((tmp_path / "emails.py").read_text())) or ""
    indented = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert [line.split("  ")[0] for line in indented] == commands


@pytest.mark.parametrize("name", sorted(FILES))
def test_existing_file_is_named_and_nothing_is_written(name: str, invoke: Invoke, tmp_path: Path):
    (tmp_path / name).write_text("mine")
    result = invoke("init")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"delayq: {name} already exists: nothing was written. ")
    assert "delayq init example" in result.stderr
    assert {path.name for path in tmp_path.glob("*.py")} == {name}
    assert (tmp_path / name).read_text() == "mine"


def test_second_run_names_both_files_and_suggests_a_folder_that_works(invoke: Invoke, tmp_path: Path):
    assert invoke("init").exit_code == 0
    result = invoke("init")
    assert result.exit_code == 1
    assert "emails.py and signup.py already exist" in result.stderr
    assert invoke("init", "example").exit_code == 0
    assert {path.name for path in (tmp_path / "example").iterdir()} == FILES


def test_broken_link_is_not_overwritten(invoke: Invoke, tmp_path: Path):
    (tmp_path / "signup.py").symlink_to(tmp_path / "elsewhere.py")
    assert invoke("init").exit_code == 1
    assert not (tmp_path / "elsewhere.py").exists()


def test_folder_that_cannot_be_created_is_reported(invoke: Invoke, tmp_path: Path):
    (tmp_path / "file").write_text("")
    result = invoke("init", "file/example")
    assert result.exit_code == 1
    assert result.stderr == "delayq: cannot write file/example: Not a directory\n"
    assert invoke("init", "file").exit_code == 2
