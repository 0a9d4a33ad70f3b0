"""Paths of a lake or an archive mean the same place to pyarrow and Java."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from delayq.errors import InvalidInput
from delayq.lake.object_store import place, uri, whole, write_table
from delayq.spark.archiving import folders
from delayq.spark.jobs.tables import read_table


@pytest.mark.parametrize(
    ("path", "java"),
    [
        ("/data/lake", "file:///data/lake"),
        ("/data/../lake/", "file:///lake"),
        ("/data/a lake/100%", "file:///data/a lake/100%"),
        ("lake", "file:///here/lake"),
        ("./lake/../other", "file:///here/other"),
        ("file:///data/lake", "file:///data/lake"),
        ("s3://bucket/lake", "s3a://bucket/lake"),
        ("s3a://bucket/lake", "s3a://bucket/lake"),
        ("S3://key:secret@bucket/lake/queue=a%2Fb", "s3a://bucket/lake/queue=a%2Fb"),
        ("gs://bucket/lake", "gs://bucket/lake"),
        ("gcs://anonymous@bucket/lake", "gs://bucket/lake"),
        (
            "abfss://lake@account.dfs.core.windows.net/folder",
            "abfss://lake@account.dfs.core.windows.net/folder",
        ),
        ("hdfs://name-node:8020/lake", "hdfs://name-node:8020/lake"),
        ("hdfs:///lake", "hdfs:///lake"),
    ],
)
def test_path_names_its_file_system_to_spark(monkeypatch: pytest.MonkeyPatch, path: str, java: str):
    monkeypatch.setattr("os.getcwd", lambda: "/here")
    assert folders.for_spark(path) == java


@pytest.mark.parametrize(
    ("path", "system", "inner"),
    [
        ("lake/queue=a%2Fb", "local", "lake/queue=a%2Fb"),
        ("file:///lake/queue=a%2Fb", "local", "/lake/queue=a%2Fb"),
        ("s3a://key:secret@bucket/a lake/queue=a%2Fb?region=us-east-1", "s3", "bucket/a lake/queue=a%2Fb"),
        ("abfss://lake@account.dfs.core.windows.net/folder", "abfs", "lake/folder"),
    ],
)
def test_path_is_used_unchanged(path: str, system: str, inner: str):
    found, within = place(path)
    assert (found.type_name, within) == (system, inner)


@pytest.mark.parametrize(
    ("path", "folder"), [("file:///", "file://"), ("s3a://bucket/", "s3a://bucket"), ("/a/", "/a")]
)
def test_folder_ends_without_a_slash(path: str, folder: str):
    assert whole(path) == folder


def test_folder_with_a_query_is_refused():
    with pytest.raises(InvalidInput, match=r"'s3://bucket/lake\?region=eu-west-1' has a query: .* AWS_REGION"):
        whole("s3://bucket/lake?region=eu-west-1")
    assert uri("lake?") is None


def test_local_table_is_found_with_another_default_file_system(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_table(str(tmp_path / "100%25 of it" / "table.parquet"), pa.table({"n": [1, 2]}))
    monkeypatch.chdir(tmp_path)  # Java does not follow
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    try:
        for path in ("100%25 of it/table.parquet", "100%25 of it/*.parquet", f"file://{tmp_path}/100%25 of it"):
            assert read_table(spark, path, "parquet").count() == 2
    finally:
        hadoop.set("fs.defaultFS", before)
