"""How long a failed message waits for its next attempt.

A backoff is a callable that returns seconds. It takes the number of the attempt that failed (1 or more). If it has a
second argument without a default, or one called ``error``, it also takes what the handler raised. The backoffs of this
module can also be written as text, and a queue stores them in that form: ``exponential:base=10s,factor=3``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any, TypeAlias

from delayq.errors import InvalidInput, InvalidTime
from delayq.model.outcome import check_takes, signature
from delayq.model.units import Seconds, milliseconds, parse_duration

MAX_RETRIES = 1_000_000

Wait: TypeAlias = Callable[[int], float]
WaitAfterError: TypeAlias = Callable[[int, BaseException | None], float]
Backoff: TypeAlias = Wait | WaitAfterError


@dataclass(frozen=True, slots=True)
class WrittenBackoff:
    """A backoff that can be written as text, and read again with `parse`."""

    text: str
    wait: Wait = field(repr=False, compare=False)

    def __call__(self, attempt: int) -> float:
        return self.wait(min(attempt, MAX_RETRIES + 1))


def seeing_errors(backoff: Backoff) -> WaitAfterError:
    """Return a backoff as one that also takes the error; raises InvalidInput if it cannot be called as one.

    It is called with at most one attempt more than the most retries that a sender may give: what another program has
    written may be so large that ``2 ** attempt`` takes minutes.
    """
    if not callable(backoff):
        raise InvalidInput(f"backoff {backoff!r} is not callable: use one from delayq.backoff, or a function")
    called: Any = backoff
    if _takes_error(called):
        check_takes(called, f"backoff {called!r}", "the attempt", "its error")
        return lambda attempt, error: called(min(attempt, MAX_RETRIES + 1), error)
    check_takes(called, f"backoff {called!r}", "the attempt")
    return lambda attempt, _: called(min(attempt, MAX_RETRIES + 1))


def _takes_error(backoff: Callable[..., float]) -> bool:
    taken = signature(backoff, follow_wrapped=False)
    positional = [
        each
        for each in (taken.parameters.values() if taken else ())
        if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    return len(positional) > 1 and (positional[1].default is Parameter.empty or positional[1].name == "error")


def fixed(seconds: Seconds) -> Wait:
    """Wait the same time before each attempt."""
    wait = _seconds(seconds, "seconds")
    return WrittenBackoff(f"fixed:{_text(wait)}s", lambda _: wait)


def linear(base: Seconds = 1, step: Seconds = 1, maximum: Seconds = 3600) -> Wait:
    """Wait `base` seconds after the first failure and `step` seconds more after each further one, up to `maximum`."""
    first, more, most = _seconds(base, "base"), _seconds(step, "step"), _seconds(maximum, "maximum")
    text = f"linear:base={_text(first)}s,step={_text(more)}s,maximum={_text(most)}s"
    return WrittenBackoff(text, lambda attempt: min(most, first + more * (attempt - 1)))


def exponential(base: Seconds = 1, factor: float = 2, maximum: Seconds = 3600, jitter: float = 0.1) -> Wait:
    """Wait `base` seconds after the first failure, and `factor` times as long after each further one.

    Args:
        factor: 1 or more.
        maximum: the longest wait, before the jitter.
        jitter: 0 to 1. Each wait is made longer or shorter at random by up to this share, so that messages that
            failed together do not come back together.
    """
    first, most = _seconds(base, "base"), _seconds(maximum, "maximum")
    if not isinstance(factor, int | float) or not factor >= 1:
        raise InvalidTime(f"factor {factor!r} is not a number of 1 or more")
    if not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
        raise InvalidTime(f"jitter {jitter!r} is not a number between 0 and 1")

    def wait(attempt: int) -> float:
        try:
            seconds = min(most, first * float(factor) ** (attempt - 1))  # a float overflows at once
        except OverflowError:
            seconds = most
        return seconds * (1 + jitter * random.uniform(-1, 1))

    text = f"exponential:base={_text(first)}s,factor={_text(factor)},maximum={_text(most)}s,jitter={_text(jitter)}"
    return WrittenBackoff(text, wait)


def sequence(waits: Sequence[Seconds]) -> Wait:
    """Wait each time of a list in turn, then keep using the last one."""
    if isinstance(waits, str) or not isinstance(waits, Sequence):
        raise InvalidTime(f"waits {waits!r} is not a list of times")
    if not waits:
        raise InvalidTime("the sequence of waits is empty: give at least one")
    seconds = [_seconds(wait, "wait") for wait in waits]
    text = f"sequence:{','.join(f'{_text(each)}s' for each in seconds)}"
    return WrittenBackoff(text, lambda attempt: seconds[min(attempt, len(seconds)) - 1])


_NAMED: dict[str, tuple[Callable[..., Wait], tuple[str, ...]]] = {
    "linear": (linear, ("base", "step", "maximum")),
    "exponential": (exponential, ("base", "factor", "maximum", "jitter")),
}
_NUMBERS = ("factor", "jitter")  # the others are times


def parse(text: str) -> Wait:
    """Read a backoff from text.

    The forms are "fixed:10s", "linear:base=1s,step=5s,maximum=1h", "exponential:base=10s,factor=3,jitter=0.1" and
    "sequence:1s,10s,1m". An argument that is left out has the default of the function of that name.

    Raises:
        InvalidInput: the text is not in one of these forms, or a value is out of range.
    """
    kind, _, rest = text.strip().partition(":")
    words = [word.strip() for word in rest.split(",")] if rest else []
    try:
        if kind == "sequence":
            return sequence(list(map(parse_duration, words)))
        if kind == "fixed":
            (word,) = words
            return fixed(parse_duration(word))
        make, names = _NAMED[kind]
        given = dict(_argument(names, word) for word in words)
        if len(given) == len(words):
            return make(**given)
    except InvalidTime as error:
        raise InvalidInput(f"backoff {text!r}: {error}") from error
    except (KeyError, ValueError):
        pass
    raise InvalidInput(
        f'unknown backoff {text!r}; write it as "fixed:10s", "linear:base=1s,step=5s,maximum=1h", '
        '"exponential:base=10s,factor=3,maximum=1h,jitter=0.1" or "sequence:1s,10s,1m"'
    )


def _argument(names: Sequence[str], word: str) -> tuple[str, float]:
    name, _, value = word.partition("=")
    if name not in names:
        raise KeyError(name)
    return name, float(value) if name in _NUMBERS else parse_duration(value)


def _text(number: float) -> str:
    return repr(float(number)).removesuffix(".0")


def _seconds(value: Seconds, what: str) -> float:
    return milliseconds(value, what) / 1000


DEFAULT_RETRIES = 5
DEFAULT_BACKOFF = exponential(base=10, factor=3, maximum=3600, jitter=0.1)
"""The waits are 10 s, 30 s, 90 s, 4.5 min and 13.5 min, about 20 minutes in all."""


def check_retries(max_retries: int) -> int:
    """Return a number of retries, 0 to 1,000,000, or raise InvalidInput."""
    if not isinstance(max_retries, int) or isinstance(max_retries, bool) or not 0 <= max_retries <= MAX_RETRIES:
        raise InvalidInput(f"max_retries {max_retries!r} is not a whole number from 0 to {MAX_RETRIES:,}")
    return max_retries
