"""Errors and plans of Spark show no password, also of a malformed URL."""

from __future__ import annotations

import traceback

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.harness.passwords import FORMS, MARK, leaks

pytestmark = pytest.mark.full


@pytest.mark.by_lot(5)
@pytest.mark.parametrize("name", ["azure", "semicolons", "redis-cli-url", "sentinel-service", "user"])
def test_no_text_of_spark_shows_a_password(name: str, spark: SparkSession, capfd: pytest.CaptureFixture[str]):
    url = FORMS[name].format(*[MARK] * 2)
    messages = spark.createDataFrame([("a", 1)], "id string, payload int")
    options = {"url": url, "queue": "emails", "waitFor": "0"}
    seen = ""
    for use in (
        lambda: spark.read.format("delayq").options(**options).load().collect(),
        lambda: spark.read.format("delayq").options(**options).load().explain(extended=True),
        lambda: messages.write.format("delayq").options(**options).mode("append").save(),
    ):
        try:
            use()
        except PySparkException as error:
            seen += "".join(traceback.format_exception(error)) + str(error)
    out, err = capfd.readouterr()
    assert "InvalidURL" in seen or name == "user"
    assert leaks(seen + out + err) == []
