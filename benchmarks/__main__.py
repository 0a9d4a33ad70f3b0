"""``python -m benchmarks``: measure delayq and its peers on a private server, or run the short check."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from pathlib import Path

import click
from delayq.cli.logging import configure
from rich.console import Console

from benchmarks import machine, short
from benchmarks.full import SECTIONS, Full, RunScale
from benchmarks.paired.samples import NOISY, PairedRates
from benchmarks.programs import find_programs
from benchmarks.rounds import SECONDS
from benchmarks.server import BenchServer

OUT = Path(".bench/results")


def words(_ctx: click.Context, option: click.Parameter, value: str | None) -> list[str] | None:
    """Parse a comma-separated list of known words."""
    if value is None:
        return None
    known = list(SECTIONS) if option.name == "only" else list(find_programs())
    unknown = [word for word in value.split(",") if word not in known]
    if unknown:
        raise click.BadParameter(f"unknown: {', '.join(unknown)}; expected some of {', '.join(known)}")
    return value.split(",")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--runs", default=5, show_default=True, type=click.IntRange(1, 100), help="Rounds; the results are medians."
)
@click.option(
    "--only",
    callback=words,
    metavar="A,B",
    help=f"Only these sections: {', '.join(SECTIONS)}. The others keep their figures.",
)
@click.option(
    "--peers", callback=words, metavar="A,B", help="Only these peers, by the names of their programs. Default: all."
)
@click.option(
    "--out", default=OUT, show_default=True, type=click.Path(path_type=Path), help="The folder for the results."
)
@click.option("--size", default=100, show_default=True, type=click.IntRange(13), help="Bytes per payload.")
@click.option(
    "--appendfsync",
    type=click.Choice(["everysec", "always"]),
    help="Let the server keep its data on disk. Default: nothing is on disk.",
)
@click.option(
    "--seconds", default=SECONDS, show_default=True, type=click.FloatRange(0.1), help="Duration of a peer's run."
)
@click.option(
    "--growth-messages",
    default=10_000_000,
    show_default=True,
    type=click.IntRange(100_000),
    help="Messages that a consumer handles while its memory is measured.",
)
@click.option(
    "--backlog-messages",
    default=10_000_000,
    show_default=True,
    type=click.IntRange(100_000),
    help="Messages that wait in the longest queue.",
)
@click.option(
    "--short", "is_short", is_flag=True, help="Only compare delayq's ratios to the bare scripts with the recorded ones."
)
@click.option("--record", is_flag=True, help="With --short: record the ratios instead.")
def main(
    runs: int,
    only: list[str] | None,
    peers: list[str] | None,
    out: Path,
    size: int,
    appendfsync: str | None,
    seconds: float,
    growth_messages: int,
    backlog_messages: int,
    is_short: bool,
    record: bool,
) -> None:
    """Measure delayq and its peers, each through its delayed path, and write tables, a picture and all samples.

    Runs its own redis-server. Takes an hour or more, or less with --only and --peers. With --short, it takes a minute,
    measures only delayq, and exits with code 1 if delayq has become slower.
    """
    if record and not is_short:
        raise click.UsageError("--record needs --short")
    configure()
    logging.getLogger("delayq").setLevel(logging.ERROR)  # the server deliberately keeps nothing on disk
    if is_short:
        sys.exit(run_short(record))
    scale = RunScale(runs, size, seconds, growth_messages, backlog_messages, appendfsync or "")
    Full(out, scale, peers or list(find_programs()), _say).run(only or list(SECTIONS), merge=only is not None)


def run_short(record: bool, recorded: Path = short.RECORDED) -> int:
    """Measure the ratios; return 1 if one of them has fallen."""
    with BenchServer() as server:

        def measured(names: Iterable[str]) -> dict[str, float]:
            return {name: paired.ratio for name, paired in short.measure(server, _say_pair, names).items()}

        if record:
            short.record(measured(short.MEASURES), machine.about(server.version), recorded)
            click.echo(f"recorded in {recorded.name}")
            return 0
        compared = short.hold(measured, short.read_recorded(recorded))
    fell = False
    for each in compared:
        fell = fell or each.fell
        verdict = "slower than before" if each.fell else "ok"
        click.echo(
            f"{each.name:<9}  {each.ratio:.3f}, recorded {each.recorded:.3f}, minimum {each.least:.3f}: {verdict}"
        )
    return int(fell)


def _say(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)


def _say_pair(name: str, paired: PairedRates) -> None:
    noise = f"; the bare scripts vary by {paired.unrest:.0%} from run to run" if paired.unrest > NOISY else ""
    _say(f"{name}: {paired.median:,.0f}/s, {paired.ratio:.3f} of the bare scripts{noise}")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
