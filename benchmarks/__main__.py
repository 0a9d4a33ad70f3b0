"""``python -m benchmarks``: delayq and its peers on a private server, or the short form for every change."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from pathlib import Path

import click
from delayq.cli.bench.samples import NOISY, PairedRates
from delayq.cli.logging import configure
from rich.console import Console

from benchmarks import machine, short
from benchmarks.full import SECTIONS, Full, RunScale
from benchmarks.programs import find_programs
from benchmarks.rounds import SECONDS
from benchmarks.server import BenchServer

OUT = Path(".bench/results")


def words(_ctx: click.Context, option: click.Parameter, value: str | None) -> list[str] | None:
    """Read a list of words with commas, each of which must be known."""
    if value is None:
        return None
    known = list(SECTIONS) if option.name == "only" else list(find_programs())
    unknown = [word for word in value.split(",") if word not in known]
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: not among {', '.join(known)}")
    return value.split(",")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--runs", default=5, show_default=True, type=click.IntRange(1, 100), help="Rounds; told are medians.")
@click.option("--only", callback=words, metavar="A,B", help=f"Of {', '.join(SECTIONS)}; the others keep their figures.")
@click.option("--peers", callback=words, metavar="A,B", help="By the names of their programs. Default: all.")
@click.option("--out", default=OUT, show_default=True, type=click.Path(path_type=Path), help="Where results are put.")
@click.option("--size", default=100, show_default=True, type=click.IntRange(13), help="Bytes of a payload.")
@click.option("--seconds", default=SECONDS, show_default=True, type=click.FloatRange(0.1), help="For a peer's run.")
@click.option(
    "--growth-messages",
    default=10_000_000,
    show_default=True,
    type=click.IntRange(100_000),
    help="That a consumer handles while its memory is watched.",
)
@click.option(
    "--backlog-messages",
    default=10_000_000,
    show_default=True,
    type=click.IntRange(100_000),
    help="That wait in the longest queue.",
)
@click.option("--short", "is_short", is_flag=True, help="delayq's ratios to the bare scripts, held to those recorded.")
@click.option("--record", is_flag=True, help="With --short: record the ratios instead.")
def main(
    runs: int,
    only: list[str] | None,
    peers: list[str] | None,
    out: Path,
    size: int,
    seconds: float,
    growth_messages: int,
    backlog_messages: int,
    is_short: bool,
    record: bool,
) -> None:
    """Measure delayq and its peers, each through its delayed path, and write tables, a picture and all samples.

    Runs on a redis-server of its own. Takes an hour or more; --only and --peers make it less. With --short it takes
    a minute, measures delayq alone, and exits with 1 when it has become slower.
    """
    if record and not is_short:
        raise click.UsageError("--record goes with --short")
    configure()
    logging.getLogger("delayq").setLevel(logging.ERROR)  # that the server keeps nothing on disk is meant
    if is_short:
        sys.exit(run_short(record))
    scale = RunScale(runs, size, seconds, growth_messages, backlog_messages)
    Full(out, scale, peers or list(find_programs()), _say).run(only or list(SECTIONS), merge=only is not None)


def run_short(record: bool, recorded: Path = short.RECORDED) -> int:
    """Measure the ratios; return 1 when one of them fell."""
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
        verdict = "slower than it was" if each.fell else "ok"
        click.echo(f"{each.name:<9}  {each.ratio:.3f}, recorded {each.recorded:.3f}, least {each.least:.3f}: {verdict}")
    return int(fell)


def _say(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)


def _say_pair(name: str, paired: PairedRates) -> None:
    noise = f"; the bare scripts differ by {paired.unrest:.0%} from run to run" if paired.unrest > NOISY else ""
    _say(f"{name}: {paired.median:,.0f}/s, {paired.ratio:.3f} of the bare scripts{noise}")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
