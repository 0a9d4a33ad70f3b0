"""A release: its tag, version and changelog agree, and its workflows run only actions that are pinned."""

from __future__ import annotations

import datetime as dt
import json
import re
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.harness.tree import ROOT, pyproject
from tools.release import NotReady, check, main, notes, prepare
from tools.site import assemble

DAY = dt.date(2026, 12, 24)
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "delayq").mkdir()
    (tmp_path / "delayq" / "__init__.py").write_text('"""delayq."""\n__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [0.1.0] - 2026-12-01\n\n- First.\n", "utf-8"
    )
    return tmp_path


def test_prepared_release_passes_its_check_and_has_notes(checkout: Path):
    with pytest.raises(NotReady, match=r"is not above 0\.1\.0"):
        prepare("0.1.0", DAY, checkout)
    prepare("0.2.0", DAY, checkout)
    assert "## [0.2.0] - 2026-12-24\n\n- New." in (checkout / "CHANGELOG.md").read_text()
    check("v0.2.0", checkout)
    assert (notes("v0.2.0", checkout), notes("v0.1.0", checkout), notes("v9.0.0", checkout)) == (
        "- New.",
        "- First.",
        "",
    )


@pytest.mark.parametrize("version", ["0.0.9", "1.0", "v0.2.0", "0.2.0rc1"])
def test_version_that_is_no_successor_is_refused_and_changes_nothing(checkout: Path, version: str):
    before = {path: path.read_text() for path in checkout.rglob("*.*") if path.is_file()}
    with pytest.raises(NotReady):
        prepare(version, DAY, checkout)
    assert {path: path.read_text() for path in before} == before


def test_nothing_new_is_not_released(checkout: Path):
    prepare("0.2.0", DAY, checkout)
    with pytest.raises(NotReady, match="nothing is to be released"):
        prepare("0.3.0", DAY, checkout)


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("0.1.0", "is not a version"),
        ("v0.2.0", "delayq/__init__.py has 0.1.0"),
        ("v0.1.0", r"newest section of CHANGELOG.md is not \[0.1.0\]"),
    ],
)
def test_tag_that_does_not_fit_stops_the_release(checkout: Path, tag: str, why: str):
    with pytest.raises(NotReady, match=why):
        check(tag, checkout)


@pytest.mark.parametrize(
    ("section", "why"), [("[0.1.0] - unreleased\n\n- New.", "has no date"), ("[0.1.0] - 2026-12-01", "empty")]
)
def test_changelog_without_a_date_or_entries_stops_the_release(checkout: Path, section: str, why: str):
    (checkout / "CHANGELOG.md").write_text(f"# Changelog\n\n## {section}\n")
    with pytest.raises(NotReady, match=why):
        check("v0.1.0", checkout)


@pytest.mark.parametrize("present", ["0.1.0", "0.2.0.dev0"])
def test_release_that_has_nothing_to_say_changes_nothing(checkout: Path, present: str):
    (checkout / "delayq/__init__.py").write_text(f'__version__ = "{present}"\n')
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    before = {path: path.read_text() for path in checkout.rglob("*.*") if path.is_file()}
    with pytest.raises(NotReady, match=r"\[Unreleased\] of CHANGELOG.md is empty"):
        prepare("0.2.0", DAY, checkout)
    assert {path: path.read_text() for path in before} == before


def test_first_release_can_be_prepared_from_this_changelog(checkout: Path):
    (checkout / "CHANGELOG.md").write_text((ROOT / "CHANGELOG.md").read_text("utf-8"), "utf-8")
    prepare("0.1.0", DAY, checkout)
    assert notes("v0.1.0", checkout).startswith("The first version")


def test_command_without_words_prints_what_it_takes(capsys: pytest.CaptureFixture[str]):
    assert (main([]), main(["check", "nonsense"])) == (2, 1)
    assert "make release VERSION=" in capsys.readouterr().err


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_pins_its_actions_by_hash_and_asks_for_few_rights(path: Path):
    text = path.read_text()
    used = re.findall(r"uses: (\S+)(.*)", text)
    loose = [
        name for name, comment in used
        if not name.startswith("./") and not (re.search(r"@[0-9a-f]{40}$", name) and re.match(r" # v\d", comment))
    ]  # fmt: skip
    assert loose == []
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


def test_only_the_step_that_publishes_may_publish():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert [name for name, job in jobs.items() if "pypi-publish" in str(job)] == ["pypi"]
    assert jobs["pypi"]["environment"]["name"] == "pypi"
    assert "run" not in str(jobs["pypi"]["steps"])  # nothing of the checkout runs beside the right to publish
    assert set(jobs["pypi"]["needs"]) == {"build", "check"}


def test_site_has_a_folder_for_each_minor_version_and_leads_to_the_newest(tmp_path: Path):
    built, releases = tmp_path / "built", tmp_path / "releases"
    built.mkdir()
    releases.mkdir()
    assert assemble(tmp_path / "first", built, releases) == ["dev"]
    for version in ("0.9.1", "0.10.0", "0.9.2", "0.9.0"):
        (built / "index.html").write_text(version)
        with tarfile.open(releases / f"site-{version}.tar.gz", "w:gz") as archive:
            archive.add(built, ".")
    (built / "index.html").write_text("main")
    pages = tmp_path / "pages"
    assert assemble(pages, built, releases) == ["0.10", "0.9", "dev"]
    assert [(pages / each / "index.html").read_text() for each in ("0.10", "0.9", "dev")] == ["0.10.0", "0.9.2", "main"]
    assert json.loads((pages / "versions.json").read_text()) == ["0.10", "0.9", "dev"]
    assert "url=0.10/" in (pages / "index.html").read_text()


def test_classifiers_name_the_pythons_of_ci():
    matrix = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"]["strategy"]["matrix"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(pyproject()["project"]["classifiers"]))
    assert named == matrix["python"]


def test_kustomization_has_every_file_that_needs_no_extension():
    folder = ROOT / "examples" / "deploy" / "kubernetes"
    base = yaml.safe_load((folder / "kustomization.yml").read_text())
    files = {path.name for path in folder.glob("*.yml")} - {"kustomization.yml", "scaling.yml"}  # which needs KEDA
    assert set(base["resources"]) == files
    used = {image for name in files for image in re.findall(r"image: (\S+?):", (folder / name).read_text())}
    assert {each["name"] for each in base["images"]} == used
