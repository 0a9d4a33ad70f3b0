"""The guides in docs/from: their programs in a folder, and their tables of what these programs carry."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.harness.pages import GUIDES, blocks

OWN_PACKAGES = {"arq.md": ["arq==0.28.0", "redis==5.3.1", "pyjwt"]}  # versions that the tests do not have
FATES = {"carried", "left behind", "dropped", "refused"}
_ROW = re.compile(r"^\| (?P<options>`.+?) \| (?P<fate>[a-z ]+) \|", re.MULTILINE)
_KILLED = """
import asyncio, importlib, os, runpy, signal
thing, name = importlib.import_module({module!r}), {name!r}
*path, name = name.split(".")
for part in path:
    thing = getattr(thing, part)
real = getattr(thing, name)
def killed(*args, **kwargs):
    if {first}:
        real(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
async def killed_async(*args, **kwargs):
    if {first}:
        await real(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(thing, name, killed_async if asyncio.iscoroutinefunction(real) else killed)
runpy.run_path("forward.py")
"""


def install(packages: list[str], folder: Path) -> None:
    """Install these packages, without their dependencies, into a folder for PYTHONPATH."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder), *packages], check=True)


def rows(page: str) -> dict[str, str]:
    """Return what a guide's table says: the fate of each option."""
    section = (GUIDES / page).read_text().partition("### What is carried\n")[2].partition("\n#")[0]
    found = [
        (option, row["fate"]) for row in _ROW.finditer(section) for option in re.findall(r"`([^`]+)`", row["options"])
    ]
    assert len(dict(found)) == len(found), "an option has two rows"
    assert {fate for _, fate in found} <= FATES
    return dict(found)


def unpack(page: str, folder: Path) -> None:
    """Write the files of a guide."""
    for block in blocks(GUIDES / page):
        if block.file:
            (folder / block.file).write_text(block.text)


def databases(url: str) -> tuple[str, str]:
    """Return the URLs of two databases of a server: one for the old system, one for delayq."""
    server = url.rpartition("/")[0]
    return f"{server}/0", f"{server}/1"


class Program:
    """Runs programs as a reader of the guide does, in a folder and an environment."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder = folder
        paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
        kept = {key: value for key, value in os.environ.items() if key != "DELAYQ_HOME"}
        self.environment = kept | {"PATH": ":".join(paths), "PYTHONUNBUFFERED": "1"} | variables

    def run(self, *command: str, code: int = 0) -> str:
        """Run a command that ends with this exit code; returns its output."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def python(self, *arguments: str, code: int = 0) -> str:
        """Run Python."""
        return self.run(sys.executable, *arguments, code=code)

    def forward(self) -> list[str]:
        """Run the guide's program; returns its lines."""
        return self.python("forward.py").splitlines()

    def forward_killed(self, module: str, name: str, *, before: bool = False) -> None:
        """Run the guide's program until it has called a function, or is about to: then SIGKILL ends it."""
        self.python("-c", _KILLED.format(module=module, name=name, first=not before), code=-9)


def line_of(lines: Sequence[str], id: str) -> str:
    """Return the only line that is about a job."""
    (line,) = (line for line in lines if line.split(" ")[0] == id)
    return line
