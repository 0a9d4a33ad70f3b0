"""A TLS front for a server without TLS, and certificates from the test's own authority."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import trustme


def certify(folder: Path) -> Path:
    """Write ``server.key`` and ``server.pem`` into a folder; return the path of the authority's certificate."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(folder / "server.key")
    certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
    return folder / "ca.pem"


@contextlib.contextmanager
def behind_tls(server: Path, certificates: Path) -> Iterator[int]:
    """Pass TLS connections on to the Unix socket of a server; yields the port of 127.0.0.1 to connect to."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    loop, end, ports, listening = asyncio.new_event_loop(), asyncio.Event(), list[int](), threading.Event()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(65_536):
                    writer.write(data)
                    await writer.drain()
            writer.close()
        except asyncio.CancelledError:
            writer.transport.abort()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_unix_connection(str(server))
        await asyncio.gather(copy(reader, forth), copy(back, writer))

    async def serve() -> None:
        front = await asyncio.start_server(connect, "127.0.0.1", 0, ssl=context)
        ports.append(front.sockets[0].getsockname()[1])
        listening.set()
        await end.wait()
        front.close()
        links = asyncio.all_tasks() - {asyncio.current_task()}
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)
        for _ in range(3):  # aborted connections are closed in the next turns of the loop
            await asyncio.sleep(0)

    thread = threading.Thread(target=asyncio.Runner(loop_factory=lambda: loop).run, args=(serve(),))
    thread.start()
    listening.wait()
    yield ports[0]
    loop.call_soon_threadsafe(end.set)
    thread.join()
    loop.close()
