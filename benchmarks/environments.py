"""The environment of a peer's program, below .bench/, with the packages that the program's header asks for.

A Python program lists them as in PEP 723, a Node program in a line ``// npm: bullmq@1.2.3 ioredis@4.5.6``, a Go program
in a line ``// go: github.com/hibiken/asynq@v1.2.3``. A program without such a header runs on the interpreter that runs
this.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".bench"
INSTALL_SECONDS = 600.0

_PYTHON = re.compile(r"^# /// script\n(?P<lines>(?:#.*\n)+?)# ///$", re.MULTILINE)
_LISTED = re.compile(r"^// (npm|go): (?P<packages>.+)$", re.MULTILINE)


class NoEnvironment(Exception):
    """An environment cannot be created."""


def requirements(text: str) -> list[str]:
    """Return the packages that a program's header asks for; empty without a header."""
    if match := _PYTHON.search(text):
        lines = match["lines"].splitlines()
        wanted = tomllib.loads("\n".join(line.removeprefix("#").removeprefix(" ") for line in lines))
        return [str(each) for each in wanted["dependencies"]]
    if match := _LISTED.search(text):
        return match["packages"].split()
    return []


def command_for(program: Path, home: Path = HOME) -> list[str]:
    """Return the command that runs a program in its environment, which is created first if it is missing or outdated.

    Raises:
        NoEnvironment: it cannot be created; the error has the installer's message.
    """
    wanted = requirements(program.read_text("utf-8"))
    if not wanted:
        return [sys.executable, str(program)]
    folder = home / program.stem
    stamp = folder / "made-for"
    asked = program.read_text("utf-8") if program.suffix == ".go" else "\n".join(wanted)  # a Go program is built
    if not stamp.exists() or stamp.read_text("utf-8") != asked:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if program.suffix == ".go":
            _make_go(folder, wanted, program)
        else:
            (_make_node if program.suffix == ".mjs" else _make_python)(folder, wanted)
        stamp.write_text(asked, "utf-8")
    if program.suffix == ".go":
        return [str(folder / "program")]
    if program.suffix == ".mjs":
        # Node looks for packages next to the file, not in the working directory.
        return ["node", str(shutil.copy(program, folder))]
    return [str(folder / "bin" / "python"), str(program)]


def _make_python(folder: Path, wanted: list[str]) -> None:
    _run([sys.executable, "-m", "venv", str(folder)], folder)
    python = str(folder / "bin" / "python")
    _run([python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *wanted], folder)


def _make_node(folder: Path, wanted: list[str]) -> None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NoEnvironment(f"{program} is not installed")
    (folder / "package.json").write_text('{"private": true}\n', "utf-8")
    _run(["npm", "install", "--no-audit", "--no-fund", "--save-exact", *wanted], folder)


def _make_go(folder: Path, wanted: list[str], program: Path) -> None:
    if shutil.which("go") is None:
        raise NoEnvironment("go is not installed")
    shutil.copy(program, folder)
    for command in (["mod", "init", "bench"], ["get", *wanted], ["build", "-o", "program", program.name]):
        _run(["go", *command], folder)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False, encoding="utf-8"
    )
    if done.returncode:
        raise NoEnvironment(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-500:]}")
