"""No text shows the login in a lake's path."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import Queue
from delayq.errors import InvalidInput
from delayq.lake.shown_path import shown
from tests.harness.tree import ROOT

SECRET = "s3cretZq9x"
PARTS = ("delayq/lake", "delayq/spark", "cli/lake", "cli/pipeline", "cli/doctor.py")
PATHS = ("path", "folder", "lake", "place", "checkpoint", "rejects", "hour_folder")
"""What variables, attributes and methods that hold the path of a lake are called."""


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("lake", "lake"),
        ("/data/me@work/a:b@c", "/data/me@work/a:b@c"),
        ("s3://bucket/lake", "s3://bucket/lake"),
        ("S3://key:secret@bucket/lake/queue=a%2Fb", "S3://***@bucket/lake/queue=a%2Fb"),
        ("s3://key:sec/ret@bucket/lake", "s3://***"),
        ("s3://key:123/ret@bucket/lake", "s3://***"),
        ("s3://bucket/lake?region=eu-west-1&secret_key=x", "s3://bucket/lake?region=eu-west-1&***"),
        ("gcs://anonymous@bucket/lake", "gcs://anonymous@bucket/lake"),
        ("abfss://lake@account.dfs.core.windows.net/folder", "abfss://lake@account.dfs.core.windows.net/folder"),
        ("hdfs://name-node:8020/lake", "hdfs://name-node:8020/lake"),
        ("file:///lake", "file:///lake"),
        ("lake/queue=emails/hour=2026-11-27T10", "lake/queue=emails/hour=2026-11-27T10"),
        ("dbfs:/lake/queue=emails", "dbfs:/lake/queue=emails"),
        ("dbfs:/lake?token=secret", "***"),
        ("lake?", "lake?"),
        ("100%25 of it/*.parquet", "100%25 of it/*.parquet"),
        ("lake?secret", "***"),
        ("host -a secret", "***"),
        ("gs://bucket/lake#secret", "gs://***"),
        (" s3://key:secret@bucket", "***"),
        ("lake=s3://key:secret@bucket", "***"),
        ("delta:s3a://key:secret@bucket/table", "***"),
        ("host:6380,password=secret,ssl=True", "***"),
        ("DefaultEndpointsProtocol=https;AccountKey=secret", "***"),
        ("s3:/key:secret@bucket/lake", "***"),
        ("//key:secret@bucket/lake", "***"),
        ("s3://key/secret:x@bucket/lake", "s3://***"),
    ],
)
def test_shown_path_is_without_secrets(path: str, text: str):
    assert shown(path) == text


@pytest.mark.parametrize(
    "path",
    [
        "key:{}@bucket/lake",
        "s3:/key:{}@bucket",
        "host:6380,password={},ssl=True",
        "no://key:{}@bucket/lake",
        "file://key:{}@host/lake",
        "no://bucket/lake?secret_key={}",
    ],
)
def test_path_that_cannot_be_used_is_refused_without_its_secret(path: str):
    with pytest.raises(InvalidInput) as refused:
        Queue("jobs", horizon=60, lake=path.format(SECRET))
    assert SECRET not in "".join(traceback.format_exception(refused.value))
    assert SECRET not in str(refused.value.__context__)


def test_texts_name_a_path_without_its_login():
    files = [
        file for part in PARTS for file in ([ROOT / part] if part.endswith(".py") else (ROOT / part).rglob("*.py"))
    ]
    files.remove(ROOT / "delayq/spark/writing/rows.py")  # its paths are those of columns
    assert {f"{file.relative_to(ROOT)}: {text}" for file in files for text in unhidden(file)} == set()


def unhidden(file: Path) -> Iterator[str]:
    """The prose of a file that has a path as it is."""
    for text in ast.walk(ast.parse(file.read_text())):
        if not isinstance(text, ast.JoinedStr):
            continue
        words = "".join(str(part.value) for part in text.values if isinstance(part, ast.Constant))
        values = [ast.unparse(part.value) for part in text.values if isinstance(part, ast.FormattedValue)]
        if " " in words and any(value.partition("(")[0].rpartition(".")[2] in PATHS for value in values):
            yield ast.unparse(text)
