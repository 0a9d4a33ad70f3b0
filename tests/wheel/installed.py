"""The installed wheel is complete.

Only ``tests/wheel/run.py`` runs this file: its name hides it from a plain pytest, since a checkout is not a wheel.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import urllib.request
from importlib.resources import files
from pathlib import Path

import delayq
from tests.harness.servers import RedisServer

BIN = Path(sys.prefix) / "bin"


def test_delayq_is_imported_from_the_venv():
    assert Path(delayq.__file__).is_relative_to(sys.prefix)


def test_version_is_the_version_of_the_wheel():
    assert importlib.metadata.version("delayq") == delayq.__version__
    assert delayq.__version__ in run("--version")


def test_every_lua_script_is_present():
    tested = {path.stem.removeprefix("test_") for path in (Path(__file__).parents[1] / "lua").glob("test_*.py")}
    installed = {Path(str(entry)).stem for entry in files("delayq.lua").iterdir() if str(entry).endswith(".lua")}
    assert installed - {"prelude"} <= tested
    assert "prelude" in installed


def test_types_are_marked_as_shipped():
    assert files("delayq").joinpath("py.typed").is_file()


def test_message_sent_by_the_library_is_received_and_acked(redis_server: RedisServer):
    with delayq.Queue("wheel", url=redis_server.url) as queue:
        sent = queue.send({"to": "a@example.org"})
        (message,) = queue.receive(wait=60)
        assert (message.id, message.payload, message.attempt) == (sent.id, {"to": "a@example.org"}, 1)
        message.ack()
        assert queue.stats().acked == 1


def test_message_sent_on_the_command_line_is_counted(redis_server: RedisServer):
    run("send", "wheel", "hello", "--url", redis_server.url)
    assert json.loads(run("stats", "wheel", "--json", "--url", redis_server.url))["sent"] == 1


def test_dashboard_serves_its_pages_and_files(redis_server: RedisServer):
    command: list[str | Path] = [BIN / "delayq", "dashboard", "--port", "0", "--url", redis_server.url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        (address,) = re.findall(r"http://\S+/", process.stderr.readline())
        with urllib.request.urlopen(address, timeout=120) as answer:
            page = answer.read().decode()
        for file in re.findall(r'(?:src|href)="/(static/[^"#]+)"', page):
            with urllib.request.urlopen(address + file, timeout=120) as answer:
                assert answer.read()
        process.terminate()
        process.communicate(timeout=120)  # it prints more at its end, which must be read
    assert process.returncode == 0


def run(*arguments: str) -> str:
    done = subprocess.run([BIN / "delayq", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_spark_knows_the_format_without_configuration(redis_server: RedisServer):
    program = """
from delayq.spark import java
java.provide()
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(3).selectExpr("cast(id AS string) payload", "0 delay")
rows.write.format("delayq").option("queue", "wheel").mode("append").save()
"""
    settings = os.environ | {
        "DELAYQ_URL": redis_server.url,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": "",  # without what the tests' own folder there prepares for Spark
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False, env=settings
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(run("stats", "wheel", "--json", "--url", redis_server.url))["sent"] == 3
