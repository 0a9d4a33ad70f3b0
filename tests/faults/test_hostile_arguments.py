"""With any arguments, a command ends with exit code 0, 1 or 2 and a line that says why; never with a traceback."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest
from delayq.cli import main
from delayq.cli.formats import payload_of
from hypothesis import given
from hypothesis import strategies as st

from delayq.errors import InvalidTime, PayloadNotSerializable
from delayq.model.units import MAX_TIME_MS, parse_duration, parse_moment
from tests.cli import conftest
from tests.cli.conftest import Invoke
from tests.harness.hostile import (
    GROWTH_BYTES,
    TEXTS,
    commands_to_a_terminal,
    examples,
    growth,
    mutations,
    refusal,
    texts,
)

environment, invoke, server = conftest.environment, conftest.invoke, conftest.server

# These commands end by themselves; long-running ones have their own tests.
ACTIONS_ON_IDS = ["cancel", "reschedule", "now"]
COMMANDS = ["send", "stats", "peek", "show", "why", "doctor", "pause", "resume", "purge", *ACTIONS_ON_IDS]
DEAD = ["list", "show", "requeue", "edit", "purge"]
# The tests of URLs and lines cover the first three, which would connect or open files; the last one never ends.
ELSEWHERE = {"--url", "--file", "-f", "--watch"}


def can_be_given(text: str) -> bool:
    """Whether it can be a process argument: bytes, where those that are not UTF-8 become surrogates."""
    return "\0" not in text and not re.search("[\ud800-\udc7f\udd00-\udfff]", text)


GIVEN = [text for text in TEXTS if can_be_given(text)]
arguments = texts.filter(can_be_given)


def options(*names: str) -> list[str]:
    """Every option of these commands."""
    found: set[str] = set()
    for name in names:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        inner = list(command.commands.values()) if isinstance(command, click.Group) else [command]
        found.update(option for each in inner for parameter in each.params for option in parameter.opts)
    return sorted(option for option in found if option.startswith("-") and option not in ELSEWHERE)


def names_no_command(given: list[str]) -> bool:
    return given[0] not in NAMES


OPTIONS = options(*COMMANDS, "dead")
NAMES = main.list_commands(click.Context(main))
words = st.one_of(
    arguments,
    st.sampled_from(OPTIONS),
    st.tuples(st.sampled_from(OPTIONS), arguments).map("=".join),
    st.sampled_from(["emails", "order-42", "hello", "1h", "pending", "--json", "2026-12-24T18:00Z"]),
)
calls = st.one_of(
    st.tuples(st.sampled_from(COMMANDS).map(lambda name: [name]), st.lists(words, max_size=6)),
    st.tuples(st.sampled_from(DEAD).map(lambda name: ["dead", name]), st.lists(words, max_size=5)),
    st.tuples(st.just([]), st.lists(arguments, min_size=1, max_size=2).filter(names_no_command)),
).map(lambda call: call[0] + call[1])


def assert_proper(result: Any) -> None:
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code in (0, 1, 2)
    assert commands_to_a_terminal(result.output) == set()
    if result.exit_code and result.stderr:
        assert result.stderr.splitlines()[-1].startswith(("delayq: ", "Example:", "  delayq "))


@pytest.mark.full
@examples
@given(calls)
def test_any_words_end_cleanly(invoke: Invoke, call: list[str]) -> None:
    assert_proper(invoke(*call, input=b"x"))


@pytest.mark.by_lot(4)
@pytest.mark.full
@pytest.mark.parametrize("command", [*COMMANDS, *(f"dead {name}" for name in DEAD)])
def test_nasty_text_in_every_argument_ends_cleanly(command: str, invoke: Invoke) -> None:
    for text in GIVEN:
        assert_proper(invoke(*command.split(), text, input=b""))
        assert_proper(invoke(*command.split(), "emails", text, input=b""))


@pytest.mark.parametrize(
    "option",
    [
        option if option == "--delay" else pytest.param(option, marks=pytest.mark.full)
        for option in options("send")
        if option.startswith("--")
    ],
)
def test_nasty_text_as_the_value_of_every_option_of_send_ends_cleanly(option: str, invoke: Invoke) -> None:
    for text in GIVEN:
        assert_proper(invoke("send", "emails", "x", f"{option}={text}"))


@pytest.mark.full
@examples
@given(texts)
def test_invalid_targets_of_consume_are_refused_cleanly(invoke: Invoke, text: str) -> None:
    assert_proper(invoke("consume", f"no_such_module_{text}", input=b""))
    assert_proper(invoke("consume", f"json:{text}", input=b""))


@pytest.mark.full
@examples
@given(texts | mutations(st.sampled_from([b"1w2d3h4m5s6ms", b"1.5", b"90s"])).map(lambda data: data.decode("latin-1")))
def test_duration_is_valid_or_refused(text: str) -> None:
    assert refusal(lambda: parse_duration(text), InvalidTime) or 0 <= parse_duration(text) * 1000 <= MAX_TIME_MS


@pytest.mark.full
@examples
@given(texts | mutations(st.just(b"2026-12-24T18:00:00.123456+01:00")).map(lambda data: data.decode("latin-1")))
def test_time_is_valid_or_refused(text: str) -> None:
    assert refusal(lambda: parse_moment(text), InvalidTime) or parse_moment(text).tzinfo is not None


@pytest.mark.full
def test_a_million_digits_are_refused_at_once() -> None:
    for unit in ("", "s", "w", ".5h", "ms", ".", "x", "w1"):
        with pytest.raises(InvalidTime):
            parse_duration("9" * 1_100_000 + unit)


@examples
@given(st.binary(max_size=60) | texts.map(lambda text: text.encode(errors="surrogatepass")))
def test_payload_on_the_command_line_is_valid_or_refused(body: bytes) -> None:
    for kind in ("auto", "json", "text", "raw"):
        refusal(lambda kind=kind: payload_of(body, kind), PayloadNotSerializable)  # type: ignore[misc]  # bound now
    assert payload_of(body, "raw") == body


@pytest.mark.full
def test_argument_readers_do_not_leak_memory() -> None:
    def work(number: int) -> None:
        text = TEXTS[number % len(TEXTS)]
        refusal(lambda: parse_duration(f"{number}h{text}"), InvalidTime)
        refusal(lambda: parse_moment(f"{text}{number}"), InvalidTime)

    assert growth(work, 6000) < GROWTH_BYTES
