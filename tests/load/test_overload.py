"""A hundred heavy requests at once: some are answered, the others told when to come again, and that holds."""

import asyncio
import time
from collections import Counter

import httpx
from loads import SECOND, path

REQUESTS = 100


async def test_a_hundred_heavy_requests_at_once(serve, figure):
    with serve() as server:
        limits = httpx.Limits(max_connections=REQUESTS + 10)
        async with httpx.AsyncClient(base_url=server.url, timeout=30, limits=limits) as client:

            async def one(number):
                start = time.monotonic()
                answer = await client.get(path(**SECOND, seed=number))
                return answer, time.monotonic() - start

            async def polite(number):
                """Comes again after Retry-After."""
                start = time.monotonic()
                while (answer := await client.get(path(**SECOND, seed=number))).status_code == 503:
                    await asyncio.sleep(float(answer.headers["retry-after"]))
                return answer.status_code, time.monotonic() - start

            late = asyncio.create_task(polite(REQUESTS))
            answers = await asyncio.gather(*(one(number) for number in range(REQUESTS)))
            status, took = await late
        statuses = Counter(answer.status_code for answer, _ in answers)
        refused = [answer for answer, _ in answers if answer.status_code == 503]
        assert set(statuses) <= {200, 503, 504}, statuses
        assert all(1 <= int(answer.headers["retry-after"]) <= 60 for answer in refused)
        assert {answer.json()["error"]["code"] for answer in refused} == {"busy"}
        figure("answered", statuses[200], "of 100", ">= 3")
        figure("refused with Retry-After", statuses[503], "of 100", ">= 50")
        figure("slowest answer of any kind", max(seconds for _, seconds in answers), "s", "<= 13")
        figure("who obeys Retry-After has its answer after", took, "s", "<= 60")
        assert status == 200
        work = server.wait_idle(10)
        figure("refusals counted", work.total("rejected_total", code="busy"), "", f">= {statuses[503] - 9}")
        assert work.total("work_failed_total") == 0
