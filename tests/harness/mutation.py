"""Put known faults back into a copy of the code, and run the tests that should catch them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from tests.harness.servers import KNOWN_VERSIONS, server_binaries

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent / "mutations"
COPIED = "tests/harness/copied.py"
RUN_SECONDS = 800.0  # against a run that hangs; one takes seconds, or half a minute if a test waits in vain
ASSERTION = re.compile(r"AssertionError|assert |Failed: DID NOT RAISE")


class Change(NamedTuple):
    """Whole lines of a file, and their replacement."""

    file: str
    old: str
    new: str


# A fault shows within a second or never, so tests need not wait as long as for a machine that pauses.
IMPATIENT = Change(
    "tests/harness/waiting.py",
    "def eventually(condition: Callable[[], bool], seconds: float = 240) -> bool:\n",
    "def eventually(condition: Callable[[], bool], seconds: float = 20) -> bool:\n",
)


class Mutation(NamedTuple):
    """A fault: where it is put back, and the tests that should catch it, by name without parameters."""

    name: str
    changes: list[Change]
    caught_by: list[str]

    @contextmanager
    def put_into(self, copy: Path) -> Iterator[None]:
        """Change the files of a copy for the duration of a block, and let tests that wait in vain give up sooner.

        Raises:
            ValueError: lines to replace are missing, or occur twice.
        """
        whole: dict[str, str] = {}
        try:
            for file, old, new in (*self.changes, IMPATIENT):
                text = (copy / file).read_text()
                whole.setdefault(file, text)
                if f"\n{text}".count("\n" + old) != 1:
                    raise ValueError(
                        f"{self.name}.patch does not fit {file} any more: make it anew. It replaces\n{old}"
                    )
                write(copy / file, f"\n{text}".replace("\n" + old, "\n" + new)[1:])
            yield
        finally:
            for file, text in whole.items():
                write(copy / file, text)


class Case(NamedTuple):
    """One run of a test with one set of parameters; `said` is the start of a failure's text."""

    outcome: str
    said: str

    @property
    def is_assertion(self) -> bool:
        """Whether the test failed by an assertion, not by an error or a timeout."""
        return self.outcome == "failure" and ASSERTION.match(self.said) is not None


def mutations() -> list[Mutation]:
    """Return all mutations, ordered by name."""
    return [read(path.stem, path.read_text()) for path in sorted(FOLDER.glob("*.patch"))]


def read(name: str, text: str) -> Mutation:
    """Read a unified diff that follows lines starting with `Caught by`."""
    head, *files = re.split(r"^--- .+\n\+\+\+ b/", text, flags=re.MULTILINE)
    changes = []
    for part in files:
        file, _, rest = part.partition("\n")
        for hunk in re.split(r"^@@ .*\n", rest, flags=re.MULTILINE)[1:]:
            lines = hunk.splitlines(keepends=True)
            old, new = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
            changes.append(Change(file, old, new))
    return Mutation(name, changes, re.findall(r"^Caught by (\S+)$", head, re.MULTILINE))


def write(path: Path, text: str) -> None:
    """Write a file of a copy, and delete its bytecode, since Python compares only the size and the time in seconds."""
    path.write_text(text)
    if path.suffix == ".py":
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


def make_copy(folder: Path) -> Path:
    """Copy tests and code into a new folder, with the code laid out as if installed; return the folder."""
    without_caches = shutil.ignore_patterns("__pycache__")
    for name, place in (("delayq", "delayq"), ("lua", "delayq/lua"), ("cli", "delayq/cli"), ("tests", "tests")):
        shutil.copytree(ROOT / name, folder / place, ignore=without_caches)
    (folder / "lua").symlink_to("delayq/lua")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run(copy: Path, tests: Sequence[str]) -> Mapping[str, list[Case]]:
    """Run tests in a copy, on one server version; return their cases by name without parameters.

    Raises:
        AssertionError: pytest could not run them, or they imported code from elsewhere.
    """
    others = {*KNOWN_VERSIONS, *server_binaries()} - {next(reversed(server_binaries()), "")}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "--basetemp=basetemp"]
    command += ["--junitxml=report.xml", "-k", " and ".join(f"not {version}" for version in sorted(others))]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment |= {"PYTHONPATH": str(copy)}  # without tests/harness/python_start: some tests import what it hides
    done = subprocess.run(
        [*command, COPIED, *tests],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr  # other codes mean that they did not run
    found: dict[str, list[Case]] = {}
    for case in ET.parse(copy / "report.xml").iter("testcase"):
        test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        trouble = next((each for each in case if each.tag in {"failure", "error", "skipped"}), None)
        outcome = Case("passed", "") if trouble is None else Case(trouble.tag, trouble.get("message", ""))
        found.setdefault(test, []).append(outcome)
    assert found.pop(f"{COPIED}::test_everything_is_imported_from_the_copy") == [("passed", "")], done.stdout
    return found
