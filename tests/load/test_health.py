"""The event loop answers while the device computes without pause."""

import asyncio
import time

import httpx
from loads import FIFTY, SECOND, Probe, every, path, percentile
from slider import Slider

SECONDS = 20


def test_health_is_answered_at_once_while_the_device_computes(serve, figure):
    with serve() as server:

        async def request(client, number, until):
            while time.monotonic() < until:
                # Another seed every time: no answer is one that the server has given before.
                answer = await client.get(path(**SECOND, seed=number))
                assert answer.status_code in (200, 503, 504)
                number += 10

        async def load():
            until = time.monotonic() + SECONDS
            async with httpx.AsyncClient(base_url=server.url, timeout=30) as client, Slider(server.address) as slider:
                requests = [asyncio.create_task(request(client, number, until)) for number in range(4)]
                async for now in every(1 / 60, until):
                    await slider.set(**FIFTY, scale=1 + 0.1 * (now % 1))
                await asyncio.gather(*requests)
                assert not slider.errors

        before, start = server.metrics(), time.monotonic()
        with Probe(server.port).running() as probe:
            asyncio.run(load())
        elapsed = time.monotonic() - start
        after = server.metrics()
        computed = after.total("compute_seconds_sum") - before.total("compute_seconds_sum")
        assert probe.statuses == {200}
        figure("answers", len(probe.seconds), "", ">= 200")
        figure("device computes", 100 * computed / elapsed, "% of the time", ">= 50")
        figure("p50", 1e3 * percentile(probe.seconds, 0.5), "ms")
        figure("p99", 1e3 * percentile(probe.seconds, 0.99), "ms", "< 100")
        figure("slowest", 1e3 * max(probe.seconds), "ms")
