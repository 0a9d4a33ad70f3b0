"""The pages are true: the commands and code on them run, from top to bottom, and print what the pages show."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq.transport.embedded import open_store
from tests.conftest import StartServer
from tests.harness.aws import running_aws
from tests.harness.guides import OWN_PACKAGES, install
from tests.harness.pages import GUIDES, PAGES, Block, blocks, name, without_variables
from tests.harness.tree import ROOT

RUNNABLE = {"python", "console"}
SHOWN = {"", "acl", "dockerfile", "json", "promql", "py", "sh", "text", "toml", "{toctree}", "{eval-rst}"}  # not run
SECONDS = 800  # some blocks are Spark programs
QUICK = ROOT / "README.md"  # the others run in `make test-all`
ELSEWHERE = {ROOT / "docs" / "django.md"}  # its code is that of an example: see tests/django/test_example.py
RUN = [page for page in PAGES if page not in ELSEWHERE and any(block.language in RUNNABLE for block in blocks(page))]


@pytest.fixture
def environment(
    page: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, str]]:
    """A reader's environment, in an empty folder: delayq on the PATH, the embedded store, and unbuffered output.

    Unlike a reader's, its Pythons import less (tests/harness/python_start). A guide in docs/from also gets the server
    that it moves messages from: BROKER_URL, or the AWS variables.
    """
    outside = {"DELAYQ_URL", "DELAYQ_HOME"}
    kept = {key: value for key, value in os.environ.items() if key not in outside}
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            open_store(tmp_path / ".delayq")
        )  # one server for all commands; otherwise each would start one
        variables = {"PATH": programs, "PYTHONUNBUFFERED": "1"}
        if page == ROOT / "docs" / "metrics.md":
            variables["PYTHONPATH"] = ""  # it imports what tests/harness/python_start hides
        elif page == GUIDES / "sqs.md":
            variables |= stack.enter_context(running_aws())
        elif page.parent == GUIDES:
            start_server: StartServer = request.getfixturevalue("start_server")
            variables["BROKER_URL"] = start_server(port=True).url
            if packages := OWN_PACKAGES.get(page.name):
                folder = tmp_path_factory.mktemp("packages")
                install(packages, folder)
                variables["PYTHONPATH"] = str(folder)
        yield kept | variables


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page == QUICK else pytest.mark.full, id=name(page)) for page in RUN]
)
def test_page_runs_from_top_to_bottom_and_shows_what_it_prints(page: Path, tmp_path: Path, environment: dict[str, str]):
    for block in blocks(page):
        if block.language == "python":
            run_python(block, tmp_path, environment)
        elif block.language == "console":
            for command, output in block.commands:
                printed = run(["sh", "-c", command], tmp_path, environment)
                assert without_variables(printed) == without_variables(output), f"{name(page)}: $ {command}"


def test_every_block_of_a_page_is_of_a_kind_that_is_tested():
    kinds = {name(page): {block.language for block in blocks(page)} for page in PAGES}
    assert {page: found for page, languages in kinds.items() if (found := languages - RUNNABLE - SHOWN)} == {}


def test_console_block_has_only_commands_and_their_output():
    console = [(page, block) for page in PAGES for block in blocks(page) if block.language == "console"]
    assert [f"{name(page)}:{block.line}" for page, block in console if not block.text.startswith("$ ")] == []


def test_only_output_that_differs_between_runs_is_normalised():
    shown = "N79lEQCLUr1Izy  2026-11-20 17:07:50.040+00:00 (2.5s ago)  1  Reject: nobody is no address"
    printed = "AyiC3s4UWXEXNZ  2031-01-02 03:04:05.678+01:00 (1h 20m ago)    1  Reject: nobody is no address"
    assert without_variables(shown) == without_variables(printed)
    for lie in (shown.replace("  1  ", "  2  "), shown.replace("ago", "from now"), shown.replace("Reject", "Retry")):
        assert without_variables(lie) != without_variables(printed)


def test_there_are_blocks_of_each_kind():
    assert {block.language for page in PAGES for block in blocks(page)} >= RUNNABLE


def run_python(block: Block, folder: Path, environment: dict[str, str]) -> None:
    """Save a block as the file named in its first line, or else run it."""
    if block.file:
        (folder / block.file).write_text(block.text)
    else:
        run([sys.executable, "-c", block.text], folder, environment)


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Run a command, and return what a terminal would show."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout
