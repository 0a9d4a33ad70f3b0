"""Errors of tasks and of SQL as delayq's own: Spark hands over the text of a traceback, or of a plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from delayq import errors
from delayq.errors import DelayqError, InvalidInput, PipelineError, RowRefused

ASIDE = "To put such rows aside: "
"""What stands before the remedy in the text of a `RowRefused`, at its end."""

_RAISED = re.compile(r"^(?:.*\s)?delayq\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def translated() -> Iterator[None]:
    """Let an error of delayq's that a task has raised be that error here, too; others of Spark are a PipelineError."""
    try:
        yield
    except Exception as error:
        if not _is_sparks(error):
            raise
        raise own(error) from error


def own(error: Exception) -> DelayqError:
    """Return the error of delayq's that an error of Spark's tells of, or else a PipelineError with its reason."""
    text_of_spark = str(error)
    for name, text in reversed(_RAISED.findall(text_of_spark)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, DelayqError):
            return kind(text)
    return PipelineError(f"Spark could not run the job: {reason(text_of_spark)}")


@contextmanager
def put_aside_by(remedy: str) -> Iterator[None]:
    """Let the error of a row that cannot be sent name the remedy that there is here, not where it was raised."""
    try:
        yield
    except RowRefused as error:
        raise RowRefused(str(error).rpartition(ASIDE)[0] + ASIDE + remedy) from error


@contextmanager
def checked(what: str, value: str, remedy: str) -> Iterator[None]:
    """Let what Spark finds wrong with a piece of SQL, or with a table, be an InvalidInput that names it.

    Args:
        what: it is.
        remedy: what the user can do, or choose from.
    """
    try:
        yield
    except Exception as error:
        if not _is_sparks(error):
            raise
        raise InvalidInput(f"{what} {value!r}: {reason(str(error))}. {remedy}") from error


def reason(text: str) -> str:
    """Return the sentence of an error of Spark's that says what is wrong, without what is for its developers."""
    classified = re.search(r"\[[A-Z][\w.]+\]\s*(\S.*)", text)
    sentence = classified[1] if classified else next(filter(None, map(str.strip, text.splitlines())), "no reason given")
    return re.sub(r"\s*SQLSTATE: \w+.*$", "", sentence).rstrip(".:; ")


def _is_sparks(error: Exception) -> bool:
    return isinstance(error, PySparkException) or type(error).__module__ == "py4j.protocol"
