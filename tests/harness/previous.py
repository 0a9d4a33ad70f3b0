"""The version before this one: its wheel, built from the commit in ``previous_version.txt``, and programs that use it.

After a release, write the release's commit into that file.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from tests.harness.tree import ROOT

COMMIT = (Path(__file__).parent / "previous_version.txt").read_text().strip()


class NoHistory(Exception):
    """The checkout lacks the commit."""


def archive(commit: str = COMMIT) -> bytes:
    """Return the files of a commit as a tar archive.

    Raises:
        NoHistory: the clone is shallow, or no clone.
    """
    packed = subprocess.run(["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode != 0:
        raise NoHistory(
            f"this checkout does not have commit {commit}, which is the version before this one: fetch the whole "
            f"history with `git fetch --unshallow` (git says: {packed.stderr.decode(errors='replace').strip()})"
        )
    return packed.stdout


def installed(folder: Path) -> Path:
    """Build the wheel, with what pip finds to build with, and return a folder from which Python can import it."""
    source, wheels, target = folder / "source", folder / "wheels", folder / "installed"
    with tarfile.open(fileobj=io.BytesIO(archive())) as packed:
        packed.extractall(source)  # of our own repository
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", wheels],
        cwd=source,
        capture_output=True,
        check=True,
    )
    (wheel,) = wheels.glob("delayq-*.whl")
    with zipfile.ZipFile(wheel) as unpacked:
        unpacked.extractall(target)
    return target


class Previous:
    """Runs programs with the version before this one.

    Args:
        folder: from `installed`.
        url: of the server that they use.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")},
            "PYTHONPATH": str(folder),
            "DELAYQ_URL": url,
        }

    def start(self, program: str) -> subprocess.Popen[str]:
        """Start a program; it has `Queue`, `Consumer` and `say`, which prints a value as a line of JSON."""
        lines = [
            "import json, sys, time, delayq",
            f"assert delayq.__file__.startswith({str(self._folder)!r}), delayq.__file__",
            "from delayq import Consumer, Outgoing, Queue",
            "def say(value): sys.stdout.write(json.dumps(value) + '\\n'); sys.stdout.flush()",
            program,
        ]
        return subprocess.Popen(
            [sys.executable, "-c", "\n".join(lines)],
            env=self._environment,
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str) -> list[Any]:
        """Run a program to its end, and return what it says."""
        with self.start(program) as process:
            out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        return [json.loads(line) for line in out.splitlines()]
