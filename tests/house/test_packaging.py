"""pyproject.toml names everything that ships: what it omits still works in the checkout, but not in the wheel."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import delayq
from tests.harness.tree import PACKAGE_FOLDERS, ROOT, modules, pyproject, syntax

SETUPTOOLS = pyproject()["tool"]["setuptools"]


def packages_in_the_tree() -> dict[str, Path]:
    """The folder of every package, by its dotted name."""
    return {name: path.parent for name, path in modules().items() if path.name == "__init__.py"}


def test_listed_packages_are_those_in_the_tree():
    assert SETUPTOOLS["packages"] == sorted(packages_in_the_tree())


def test_packages_outside_delayq_are_mapped_to_their_folders():
    mapped = {name: ROOT / folder for name, folder in SETUPTOOLS["package-dir"].items()}
    assert mapped == {name: folder for name, folder in PACKAGE_FOLDERS.items() if name != "delayq"}


def test_listed_single_modules_are_those_in_the_tree():
    assert sorted(SETUPTOOLS["py-modules"]) == sorted({path.stem for path in ROOT.glob("*.py")} - {"setup"})


def test_every_module_is_in_a_package():
    packages = set(packages_in_the_tree().values())
    assert {str(path) for path in modules().values() if path.parent not in packages} == set()


def test_every_other_file_is_package_data():
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


def test_version_is_written_only_in_delayq():
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


def said_by_setup(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What setup.py says."""
    said: dict[str, Any] = {}
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=said.update))
    runpy.run_path(str(ROOT / "setup.py"))
    return said


def test_metadata_is_the_same_for_every_distribution():
    """What differs between a wheel and an sdist of a version breaks lock files."""
    assert set(pyproject()["project"]["dynamic"]) == {"version", "readme", "urls"}
    assert set(ast_arguments(ROOT / "setup.py")) == {
        "long_description",
        "long_description_content_type",
        "project_urls",
    }


def ast_arguments(path: Path) -> list[str | None]:
    """The names of the arguments that setup.py gives to `setup`."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    (call,) = (each for each in calls if isinstance(each.func, ast.Name) and each.func.id == "setup")
    return [each.arg for each in call.keywords]


def test_server_is_an_extra_with_markers():
    assert not any("valkey" in line for line in pyproject()["project"]["dependencies"])
    (line,) = pyproject()["project"]["optional-dependencies"]["embedded"]
    marker = Requirement(line).marker
    assert marker is not None
    machines = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("darwin", "x86_64")]
    without = [("linux", "ppc64le"), ("win32", "AMD64")]
    fits = {
        each: marker.evaluate({"sys_platform": each[0], "platform_machine": each[1]}) for each in machines + without
    }
    assert fits == dict.fromkeys(machines, True) | dict.fromkeys(without, False)


@pytest.mark.parametrize("home", [None, "somebody/delayq"])
def test_description_of_the_package_has_no_relative_links(home: str | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    if home:
        monkeypatch.setenv("GITHUB_REPOSITORY", home)
    said = said_by_setup(monkeypatch)
    description = said["long_description"]
    assert said["project_urls"].get("Documentation") == (home and "https://somebody.github.io/delayq/")
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert [link for link in links if not link.startswith("https://")] == []
    assert bool(links) == bool(home)
    assert "delayq consume emails:emails" in description


def strings(module: str) -> set[str]:
    return {
        node.value
        for node in ast.walk(syntax(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_ci_tests_the_oldest_versions_of_all_dependencies() -> None:
    required = {
        each.name: next(iter(each.specifier)).version
        for each in map(Requirement, pyproject()["project"]["dependencies"])
    }
    lines = (ROOT / ".ci/oldest.txt").read_text().splitlines()
    oldest = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    assert {name: Version(text) for name, text in oldest.items()} == {
        name: Version(text) for name, text in required.items()
    }


def test_sdist_names_what_distributions_need_to_test_it():
    listed = re.findall(r"^graft (\S+)|^include (.+)", (ROOT / "MANIFEST.in").read_text(), re.MULTILINE)
    named = {word for folder, files in listed for word in (folder, *files.split()) if word}
    assert named >= {"tests", "docs", "examples", "tools", "benchmarks", "Makefile", "CHANGELOG.md"}
    assert [word for word in named if not (ROOT / word).exists()] == []


def test_only_one_function_says_how_to_install_an_extra():
    written = [
        module for module in modules() for text in strings(module) if re.search(r"pip install .*(delayq|\.)\[", text)
    ]
    assert written == []


def test_pages_install_from_a_checkout_until_there_is_a_release():
    assert "## [0.1.0] - unreleased" in (ROOT / "CHANGELOG.md").read_text(), "pages may name delayq on an index now"
    read = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*"), *modules().values()]
    pages = [page for page in read if page.is_file() and page.suffix != ".pyc" and page.parent.name != "decisions"]
    from_index = re.compile(r"pip install [^`\n,]*?(?<![/.])\bdelayq\b")
    found = [page.name for page in pages if from_index.search(page.read_text("utf-8"))]
    assert found == ["extras.py"]  # the function that makes the hints of errors
