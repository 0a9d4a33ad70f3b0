"""Spans of sends and deliveries in the async API: each task has its own."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from delayq.aio import Consumer, Message, Queue
from delayq.telemetry import Telemetry
from tests.aio.conftest import Run
from tests.harness.servers import RedisServer


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


def test_spans_of_concurrent_tasks_are_not_mixed_up(run: Run, url: str):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")

    async def main() -> None:
        all_here = asyncio.Event()
        async with Queue("orders", url=url) as queue, Queue("bills", url=url) as bills:
            for each in (queue, bills):
                Telemetry(provider).instrument(each)

            async def order(number: int) -> None:
                with tracer.start_as_current_span(f"ordering {number}"):
                    await queue.send(number)

            running = 0

            async def handle(message: Message) -> None:
                nonlocal running
                running += 1
                if running == 5:
                    all_here.set()
                await all_here.wait()
                await bills.send(message.payload, id=str(message.payload))

            await asyncio.gather(*(order(number) for number in range(5)))
            assert await Consumer(queue, handle, concurrency=5).drain() == 5
            traces = {span.name: span.context.trace_id for span in exporter.get_finished_spans() if span.context}
            for message in await bills.receive():
                trace = int(message.headers["traceparent"].split("-")[1], 16)
                assert trace == traces[f"ordering {message.payload}"]
                await message.ack()
            assert (await bills.stats()).acked == 5

    run(main())
    provider.shutdown()
