"""Tests are not blamed for the sockets between their process and the Java of its session."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.harness.sockets import all_closed, ports_of_java


def test_open_sockets_to_java_are_not_reported_but_others_are(spark: SparkSession):
    context: Any = spark.sparkContext
    port = context._gateway.gateway_parameters.port
    assert port in ports_of_java()
    assert len(ports_of_java()) == 3  # including those on which this process listens to Java
    with all_closed(seconds=0):
        to_java = socket.create_connection(("127.0.0.1", port))
    with to_java, pytest.raises(AssertionError, match=r"left open: fd=\d+"), all_closed(seconds=0):
        other = socket.create_server(("127.0.0.1", 0))
    other.close()
