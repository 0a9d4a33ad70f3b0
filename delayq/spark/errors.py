"""Turn errors of tasks and SQL, which Spark passes on as text of a traceback or a plan, into delayq's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from delayq import errors
from delayq.errors import DelayqError, InvalidInput, PipelineError, RowRefused

ASIDE = "To put such rows aside: "
"""The words before the remedy at the end of a `RowRefused`."""

_RAISED = re.compile(r"^(?:.*\s)?delayq\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def translated() -> Iterator[None]:
    """Raise a task's delayq error here as the same error, and other errors of Spark as PipelineError."""
    try:
        yield
    except Exception as error:
        if not _is_sparks(error):
            raise
        raise own(error) from error


def own(error: Exception) -> DelayqError:
    """Return the delayq error inside an error of Spark, or else a PipelineError with its reason."""
    text_of_spark = str(error)
    for name, text in reversed(_RAISED.findall(text_of_spark)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, DelayqError):
            return kind(text)
    return PipelineError(f"Spark could not run the job: {reason(text_of_spark)}")


@contextmanager
def put_aside_by(remedy: str) -> Iterator[None]:
    """Replace the remedy in the error of a refused row by the one that applies here."""
    try:
        yield
    except RowRefused as error:
        raise RowRefused(str(error).rpartition(ASIDE)[0] + ASIDE + remedy) from error


@contextmanager
def checked(what: str, value: str, remedy: str) -> Iterator[None]:
    """Raise Spark's error about a piece of SQL or a table as an InvalidInput that names it.

    Args:
        what: the kind of thing, for the error.
        remedy: what the user can do or choose from.
    """
    try:
        yield
    except Exception as error:
        if not _is_sparks(error):
            raise
        raise InvalidInput(f"{what} {value!r}: {reason(str(error))}. {remedy}") from error


def reason(text: str) -> str:
    """Return the sentence of a Spark error that says what is wrong, without details for Spark's developers."""
    classified = re.search(r"\[[A-Z][\w.]+\]\s*(\S.*)", text)
    sentence = classified[1] if classified else next(filter(None, map(str.strip, text.splitlines())), "no reason given")
    return re.sub(r"\s*SQLSTATE: \w+.*$", "", sentence).rstrip(".:; ")


def _is_sparks(error: Exception) -> bool:
    return isinstance(error, PySparkException) or type(error).__module__ == "py4j.protocol"
