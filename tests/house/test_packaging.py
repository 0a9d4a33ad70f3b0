"""pyproject.toml names all that ships: what it forgets still works in the checkout, and is missing from the wheel."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import delayq
from tests.harness.tree import PACKAGE_FOLDERS, ROOT, modules, pyproject, syntax

SETUPTOOLS = pyproject()["tool"]["setuptools"]


def packages_in_the_tree() -> dict[str, Path]:
    """The folder of every package, by its dotted name."""
    return {name: path.parent for name, path in modules().items() if path.name == "__init__.py"}


def test_packages_named_are_those_in_the_tree():
    assert SETUPTOOLS["packages"] == sorted(packages_in_the_tree())


def test_packages_outside_delayq_are_mapped_to_their_folders():
    mapped = {name: ROOT / folder for name, folder in SETUPTOOLS["package-dir"].items()}
    assert mapped == {name: folder for name, folder in PACKAGE_FOLDERS.items() if name != "delayq"}


def test_modules_outside_of_packages_are_those_in_the_tree():
    assert sorted(SETUPTOOLS["py-modules"]) == sorted(path.stem for path in ROOT.glob("*.py"))


def test_every_module_is_in_a_package():
    packages = set(packages_in_the_tree().values())
    assert {str(path) for path in modules().values() if path.parent not in packages} == set()


def test_every_file_beside_the_modules_is_package_data():
    patterns = SETUPTOOLS["package-data"]
    beside = {
        (name, path.name)
        for name, folder in packages_in_the_tree().items()
        for path in folder.iterdir()
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    forgotten = {
        (package, file)
        for package, file in beside
        if not any(Path(file).match(pattern) for pattern in patterns.get(package, []))
    }
    assert beside >= {("delayq", "py.typed"), ("delayq.lua", "send.lua")}
    assert forgotten == set()


def test_version_is_written_in_delayq_alone():
    assert SETUPTOOLS["dynamic"]["version"] == {"attr": "delayq.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", delayq.__version__)
    holders = [module for module in modules() if delayq.__version__ in strings(module)]
    assert holders == ["delayq"]


def test_oldest_python_is_the_same_everywhere():
    oldest = pyproject()["project"]["requires-python"].removeprefix(">=")
    major, minor = oldest.split(".")
    assert pyproject()["tool"]["ruff"]["target-version"] == f"py{major}{minor}"
    assert pyproject()["tool"]["mypy"]["python_version"] == oldest
    assert f"({major}, {minor})" in (ROOT / "Makefile").read_text()
    classifiers = [line for line in pyproject()["project"]["classifiers"] if "Python :: 3." in line]
    assert classifiers[0].endswith(oldest)


def strings(module: str) -> set[str]:
    return {
        node.value
        for node in ast.walk(syntax(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
