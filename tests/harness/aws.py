"""AWS for tests: moto's server, a stand-in that keeps everything in memory."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator

from tests.harness.servers import free_port
from tests.harness.waiting import eventually

REGION = "us-east-1"


@contextlib.contextmanager
def running_aws() -> Iterator[dict[str, str]]:
    """Run the server; yields the environment variables that make AWS clients use it."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert eventually(lambda: listens(port))
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    """Return whether something accepts connections there."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
