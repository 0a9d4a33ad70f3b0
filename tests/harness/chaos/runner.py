"""The chaos runner: runs scenarios with seeds, and prints a line for each.

Usage: python -m tests.harness.chaos [OPTIONS]
"""

from __future__ import annotations

import importlib
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import click

from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.world import Size, World

Scenario: TypeAlias = Callable[[World], Verdict]

FOLDER = Path(__file__).parent / "scenarios"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
LONG_ALONE = {"kill_archive", "kill_sink"}
"""Not in the suite: with a driver of Spark that is started three times over, even the short form takes 40 s. There,
tests/spark kills within one session, at each step."""


def scenario(name: str) -> Scenario:
    """Return the scenario of a name: the `run` of the module with that name."""
    found: Scenario = importlib.import_module(f"tests.harness.chaos.scenarios.{name}").run
    return found


def play(name: str, seed: int, size: Size, folder: Path) -> tuple[Verdict, dict[str, str]]:
    """Run a scenario; return the verdict and its other measurements.

    Raises:
        AssertionError: the scenario failed; what the processes saw is in `folder`.
    """
    world = World(folder, seed, size)
    try:
        verdict = scenario(name)(world)
    finally:
        world.close()
    assert verdict.is_valid, verdict
    return verdict, world.figures


@click.command(help=__doc__)
@click.option("--only", metavar="A,B", help=f"Of {', '.join(NAMES)}. Default: all.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The first one.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="How many, one after another.")
@click.option("--short", is_flag=True, help="As in the suite: seconds each, and no bounds on time.")
@click.option("--keep", is_flag=True, help="Keep the journals of a run that fails.")
def main(only: str | None, seed: int, seeds: int, short: bool, keep: bool) -> None:
    """Run scenarios; exit 1 when one fails."""
    logging.getLogger("delayq").setLevel(logging.ERROR)  # one line per scenario: the verdict says what is wrong
    names = only.split(",") if only else NAMES
    if unknown := sorted(set(names) - set(NAMES)):
        raise click.BadParameter(f"{', '.join(unknown)}: there are {', '.join(NAMES)}", param_hint="--only")
    failed = 0
    for name in names:
        for number in range(seed, seed + seeds):
            failed += not reported(name, number, "short" if short else "long", keep)
    sys.exit(1 if failed else 0)


def reported(name: str, seed: int, size: Size, keep: bool) -> bool:
    """Run a scenario and print its line; return whether it passed."""
    folder = Path(tempfile.mkdtemp(prefix="delayq-chaos-"))
    began = time.monotonic()
    try:
        verdict, figures = play(name, seed, size, folder)
    except Exception as error:  # noqa: BLE001  # the others must still run
        click.echo(f"{name:20} seed {seed}  FAILED after {time.monotonic() - began:.0f} s: {error}")
        again = f"make chaos ARGS='--only {name} --seed {seed}{' --short' if size == 'short' else ''}'"
        click.echo(f"{'':20} again: {again}{f'; journals: {folder}' if keep else ''}")
        if not keep:
            shutil.rmtree(folder)
        return False
    shutil.rmtree(folder)
    beside = "".join(f"  {label} {figure}" for label, figure in figures.items())
    click.echo(f"{name:20} seed {seed}  {time.monotonic() - began:4.0f} s  {verdict}{beside}")
    return True
