"""The results for people: the same tables on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks import awaited, functions, ledger, topics
from benchmarks import tables as spark_tables
from benchmarks.paired.plan import RATES
from benchmarks.targets import Results, verdicts
from benchmarks.workloads import WORKLOADS, Workload

EXCUSE = 160  # characters
SYNC_TITLES = {name: title for name, (title, _) in RATES.items()}


class Table(NamedTuple):
    """A table with formatted cells: the first in a row is text, the others are figures."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def tables(results: Results) -> Iterator[Table]:
    """Yield a table for everything that was measured: first delayq with its peers, then the targets."""
    for workload in WORKLOADS:
        if workload.name in results["workloads"]:
            yield _of_peers(workload, results)
    held = [[each.name, *each.shown, each.word] for each in verdicts(results)]
    yield Table("Targets", ["", "measured", "target", "verdict"], held)
    own = results["own"]
    yield from _beside(own)
    for key in ("backlog", "backlog_10m"):
        if key in own:
            yield from _of_backlog(own[key])
    if rows := list(_of_own(own)):
        yield Table("delayq alone", ["", "measured"], rows)
    if rows := list(_of_reference(results["reference"])):
        yield Table("The machine's own rates, before and after", ["", "before", "after"], rows)
    if results["failed"]:
        yield Table("Failed", ["", "why"], [[name, _short(why)] for name, why in results["failed"].items()])


def print_tables(results: Results, console: Console) -> None:
    """Print all tables."""
    for table in tables(results):
        console.print(table.title, style="bold")
        shown = RichTable(box=None, pad_edge=False)
        for number, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if number else "left")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown, "", sep="\n")


def markdown(results: Results) -> str:
    """Return all tables as Markdown, with the machine and the settings of the peers."""
    sections = [f"### {table.title}\n\n{markdown_table(table)}\n" for table in tables(results)]
    return "\n".join([_measured_on(results), *sections, *_peers(results)])


def _of_peers(workload: Workload, results: Results) -> Table:
    cells: dict[str, Any] = results["workloads"][workload.name]
    names = {key: results["peers"][key]["peer"] for key in cells}

    def place(key: str) -> tuple[bool, float]:
        figures = cells[key].get("figures")
        value = figures[workload.main]["median"] if figures else 0.0
        return figures is None, -value if workload.higher_is_better else value

    rows = []
    for key in sorted(cells, key=place):
        cell = cells[key]
        if "figures" in cell:
            row = [_figure(cell["figures"][name], form) for name, (_, form) in workload.columns.items()]
        else:
            excuse = f"not supported: {cell['unsupported']}" if "unsupported" in cell else f"failed: {cell['failed']}"
            row = [_short(excuse), *[""] * (len(workload.columns) - 1)]
        rows.append([names[key], *row])
    return Table(workload.title, ["", *(heading for heading, _ in workload.columns.values())], rows)


def _of_pairs(
    title: str,
    pairs: dict[str, Any],
    titles: Mapping[str, str] = SYNC_TITLES,
    what: tuple[str, str] = ("messages", "bare scripts"),
) -> Table:
    rows = [
        [
            titles[name],
            _figure(pair["per_second"], ",.0f"),
            _figure(pair["bare_per_second"], ",.0f"),
            f"{pair['ratio']:.2f}",
            f"{pair['unrest']:.0%}",
        ]
        for name, pair in pairs.items()
    ]
    return Table(title, [f"{what[0]}/s", "delayq", what[1], "ratio", "noise"], rows)


def _beside(own: dict[str, Any]) -> Iterator[Table]:
    if "rates" in own:
        yield _of_pairs("delayq compared with the bare scripts", own["rates"])
    if "awaited" in own:
        yield _of_pairs("delayq.aio compared with the bare scripts", own["awaited"], awaited.TITLES)
    if "topics" in own:
        yield _of_pairs(
            "Topics compared with plain Redis commands", own["topics"], topics.TITLES, ("records", "redis-py")
        )
    if "functions" in own:
        title = "Functions as tasks compared with a plain handler"
        yield _of_pairs(title, own["functions"], functions.TITLES, ("messages", "handler"))
    if "ledger" in own:
        yield _of_ledger(own["ledger"])
    if "metrics" in own:
        yield _of_metrics(own["metrics"]["drain"])
    if "tables" in own:
        found = own["tables"]
        rows = [[title, f"{found['per_second'][name]:,.0f}"] for name, title in spark_tables.TITLES.items()]
        yield Table(f"Tables of {found['rows']:,} rows, in two processes", ["", "rows/s"], rows)


def _of_ledger(found: dict[str, Any]) -> Table:
    rows = [
        [
            ledger.TITLES[name],
            _figure(each["per_second"], ",.0f"),
            _figure(each["bare_per_second"], ",.0f"),
            f"{ledger.cost(each['ratio']):.0%}",
            f"{each['redis_us']['with']:.1f}",
            f"{each['redis_us']['without']:.1f}",
            f"{each['unrest']:.0%}",
        ]
        for name, each in found.items()
    ]
    redis = [f"Redis, µs per message: {which}" for which in ("with", "without")]
    return Table("With a ledger, and without", ["messages/s", "with", "without", "cost", *redis, "noise"], rows)


def _of_metrics(found: dict[str, Any]) -> Table:
    row = [
        "consume",
        _figure(found["per_second"], ",.0f"),
        _figure(found["bare_per_second"], ",.0f"),
        f"{1 - found['ratio']:.1%}",
        str(sum(found["scrapes"])),
        f"{found['unrest']:.0%}",
    ]
    return Table(
        "Scraped once a second, and without", ["messages/s", "scraped", "not", "cost", "scrapes", "noise"], [row]
    )


def _of_backlog(found: dict[str, Any]) -> Iterator[Table]:
    title = f"{found['waiting']:,} messages of {found['size']} bytes wait"
    yield _of_pairs(title, found["rates"])
    rows = [[f"{name}, relative to an empty queue", f"{share:.2f}"] for name, share in found["of_empty"].items()]
    for name, took in found["calls"].items():
        rows.append([name, f"{took['p50_ms']:.2f} ms, 99% {took['p99_ms']:.2f}, longest {took['max_ms']:.2f}"])
    longest = found["longest_script"]
    rows.append(["longest script", f"{longest['ms']:.2f} ms {longest['name']}; {longest['over_5_ms']} over 5 ms"])
    rows.append(["memory", f"{found['memory_bytes']:.0f} bytes per message"])
    yield Table(f"{title}: single calls", ["", "measured"], rows)


def _of_own(own: dict[str, Any]) -> Iterator[list[str]]:
    if cost := own.get("cost"):
        yield ["Redis CPU time per message, in bulk and consumed", f"{cost['redis_cpu_us']:.1f} µs"]
        yield ["commands per message, including those in scripts", f"{cost['commands']:.2f}"]
        yield ["round trips per message, in bulk", f"{cost['trips']:.3f}"]
        yield ["round trips of a single message", f"{cost['lone_trips']:.0f}"]
    for count, each in own.get("consumers", {}).items():
        cpu = f"CPU per message: Redis {each['redis_us']:.1f} µs, consumers {each['consumer_us']:.1f} µs"
        yield [f"consumer processes that drain: {count}", f"{each['per_second']:,.0f}/s; {cpu}"]
        yield ["Redis' share of a core during this", f"{each['redis_core_share']:.0%}"]
    if idle := own.get("idle_own"):
        for key, what in (("one", "an idle consumer"), ("fleet", "an idle fleet, 4 processes of 25 threads")):
            used = idle[key]
            yield [f"{what}: CPU time", f"{used['cpu_percent']:.2f} % of a core"]
            yield [f"{what}: commands sent", f"{used['commands_per_second']:.1f}/s"]
            yield [f"{what}: commands in scripts", f"{used['within_scripts_per_second']:.1f}/s"]
    if fleet := own.get("fleet"):
        late = f"50% {fleet['p50_ms']:.2f}, 99% {fleet['p99_ms']:.2f}, maximum {fleet['max_ms']:.1f} ms"
        yield ["lateness with that fleet, 100 per second", f"{late}; {fleet['early']:,} early"]
    if growth := own.get("growth"):
        early, late = growth["bytes_at_10_percent"] / 2**20, growth["bytes_at_the_end"] / 2**20
        yield [f"a consumer's memory over {growth['messages']:,} messages", f"{early:.1f} → {late:.1f} MiB"]


def _of_reference(reference: dict[str, Any]) -> Iterator[list[str]]:
    before, after = reference.get("before", {}), reference.get("after", {})
    for name in before:
        yield [name, f"{before[name]:,.0f}/s", f"{after[name]:,.0f}/s" if name in after else "–"]


def _figure(figure: dict[str, Any], form: str) -> str:
    median, least, most = (format(figure[key], form) for key in ("median", "min", "max"))
    return median if least == most else f"{median} ({least}–{most})"


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= EXCUSE else f"{words[: EXCUSE - 1]}…"


def markdown_table(table: Table) -> str:
    """Return a table as Markdown."""
    rules = ["---", *["---:"] * (len(table.columns) - 1)]
    lines = [table.columns, rules, *([cell.replace("|", "\\|") for cell in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _measured_on(results: Results) -> str:
    about = results["about"]
    return (
        f"Measured on {about['processor']}, {about['cores']} cores, {about['memory_gib']} GiB, {about['system']}; "
        f"Redis {about['redis']}, Python {about['python']}, delayq {about['delayq']}, redis-py {about['redis-py']}, "
        f"hiredis {about['hiredis']}; {about['at']}; payloads of {about.get('size', '?')} bytes, append-only file: "
        f"{about.get('appendfsync') or 'off'}. The longest pause of a process that was ready "
        f"to run was {about['longest_pause_ms']} ms. Medians, with minimum and maximum of up to {about['runs']} runs.\n"
    )


def _peers(results: Results) -> Iterator[str]:
    yield "### The peers and their settings\n"
    for about in results["peers"].values():
        yield f"- **{about['peer']} {about['version']}** ({about['language']})."
        yield f"  Throughput: {about['throughput']}."
        yield f"  Latency: {about['latency']}."
        if about.get("note"):
            yield f"  {about['note'].rstrip('.')}."
