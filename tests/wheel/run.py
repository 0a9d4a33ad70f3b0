"""Run the tests against the wheel that users get, where the checkout is out of reach.

The script builds an sdist from the checkout and a wheel from the sdist. It installs the wheel into a fresh venv in a
temporary folder and copies the tests there. Anything that works only because the checkout is near fails here.

Usage: python tests/wheel/run.py [ARGUMENT OF PYTEST …]
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The wheel is known to have the files of the checkout: these tests notice if they are not where they are looked for.
# test_declared_keys runs each script once.
SUITES = ["tests/wheel/installed.py", "tests/protocol", "tests/lua/test_declared_keys.py", "tests/testing"]


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="delayq-wheel-") as folder:
        place = Path(folder)
        wheel = build(place / "dist")
        if differences := sources() ^ contents(wheel):
            print(f"{wheel.name} and the folders differ in {', '.join(sorted(differences))}", file=sys.stderr)
            return 1
        python = install(wheel, place / "venv")
        copy_tests(place / "run")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs this in the background ignores it
        options = ["-n", "auto", "--maxprocesses=4", "-m", "not full"]
        command: list[str | Path] = [python, "-m", "pytest", *options, *SUITES, *arguments]
        return subprocess.run(command, cwd=place / "run", env=environment(), check=False).returncode


def build(folder: Path) -> Path:
    """Build the sdist, and from it the wheel, into ``folder``."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], env=environment(), check=True)
    (wheel,) = folder.glob("delayq-*.whl")
    return wheel


def sources() -> set[str]:
    """What the wheel must contain: single modules, and every file of the packages' folders, by their names in it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    mapped = {"delayq": "delayq"} | settings["package-dir"]
    return {f"{module}.py" for module in settings["py-modules"]} | {
        f"{package.replace('.', '/')}/{path.relative_to(ROOT / folder)}"
        for package, folder in mapped.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def contents(wheel: Path) -> set[str]:
    """What the wheel contains, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def install(wheel: Path, folder: Path) -> Path:
    """Install ``wheel`` and what the tests need into a new venv, and return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", f"{wheel}[test]"], env=environment(), check=True)
    return python


def copy_tests(folder: Path) -> None:
    """Copy the tests and pytest's settings."""
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def environment() -> dict[str, str]:
    """The environment, without what would let Python find the checkout."""
    return {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
