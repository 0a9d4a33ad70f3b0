from __future__ import annotations

import json

import pytest
from delayq.cli.formats import parse_count, parse_size

from delayq.errors import InvalidInput
from delayq.model.show import show_size
from tests.cli.conftest import Invoke

YEAR = ("plan", "--messages", "1e9", "--payload", "300", "--spread", "365d")


def test_plan_prints_both_ways_of_holding_messages(invoke: Invoke):
    lines = invoke(*YEAR, "--horizon", "2h").stdout.splitlines()
    assert lines[0] == "1,000,000,000 messages of 300 bytes, due over 365d: 31.7 per second"
    cells = {line[:31].strip(): line[31:].split() for line in lines[2:]}
    assert cells["messages in Redis"] == ["1,000,000,000", "342,466"]
    assert [cell for cell in cells["Redis memory"] if cell.endswith("iB")] == ["GiB", "MiB"]
    assert cells["servers of 16 GiB (shards)"][-1] == "1"


def test_plan_as_json_has_the_figures_in_plain_units(invoke: Invoke):
    document = json.loads(invoke(*YEAR, "--rate", "100/s", "--unique-for", "1d", "--json").stdout)
    assert document["peak_per_second"] == 100
    assert document["lake"]["in_redis"]["messages"] == 3 * 3600 * 100
    assert document["all_in_redis"]["reserved"] == 10**9
    assert document["lake"]["in_redis"]["reserved"] == 27 * 3600 * 100
    assert document["lake"]["hydrate_seconds"] > document["drain_seconds"] > 0


def test_newer_redis_needs_less_memory(invoke: Invoke):
    older, newer = (json.loads(invoke(*YEAR, "--redis", each, "--json").stdout) for each in ("7.0", "8.2"))
    assert newer["all_in_redis"]["redis_bytes"] < older["all_in_redis"]["redis_bytes"]


def test_more_servers_than_shards_get_a_note(invoke: Invoke):
    result = invoke("plan", "--messages", "1e12", "--payload", "300", "--spread", "365d")
    assert result.exit_code == 0
    assert "a queue can have 1,024 shards, not" in result.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--messages", "1.5"], "'1.5' is not a whole number: write it as in 1000000, 1,000,000 or 1e6"),
        (["--messages", "many"], "'many' is not a whole number"),
        (["--payload", "3x"], "'3x' is not a number of bytes: write it as in 300, 2k, 512m or 16g"),
        (["--payload", "2m"], "a payload of 2,097,152 bytes is not between 0 and 1,048,576"),
        (["--spread", "soon"], "'soon' is not a duration"),
        (["--spread", "0"], "a spread of 0 s is not between 1 s and"),
        (["--rate", "1/s"], "a peak of 1/s is below the mean of 31.71/s"),
        (["--server-memory", "1k"], "1,024 bytes is too little memory for a server: give 64m or more"),
    ],
)
def test_impossible_plan_is_refused(words: list[str], expected: str, invoke: Invoke):
    result = invoke(*YEAR, *words)
    assert result.exit_code == 2
    assert expected in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("text", "count"), [("7", 7), ("1e9", 10**9), ("2.5e6", 2_500_000), ("1,000,000", 10**6), ("1_000", 1000)]
)
def test_count_is_read(text: str, count: int):
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "-1", "1e", "1,00", "0.5", "1e99", "inf"])
def test_bad_count_is_refused(text: str):
    with pytest.raises(InvalidInput, match="is not a whole number"):
        parse_count(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("300", 300), ("2k", 2048), ("1.5m", 1_572_864), ("16g", 2**34), ("16GiB", 2**34), ("1TB", 2**40)],
)
def test_size_is_read(text: str, size: int):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "g", "1x", "1 g", "9999999999t"])
def test_bad_size_is_refused(text: str):
    with pytest.raises(InvalidInput, match="is not a number of bytes"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "0.977 KiB"), (2**34, "16 GiB"), (2**60, "1,048,576 TiB")],
)
def test_size_is_shown_with_three_digits(size: int, shown: str):
    assert show_size(size) == shown
