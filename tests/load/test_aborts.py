"""Hundreds of requests whose clients go away at any moment: the slot is free again, and nothing is left behind."""

import asyncio
import contextlib
import random
import socket
import struct

import httpx
from loads import ENDLESS, ENDLESS_FLOPS, FIFTY, path, request_head
from served import wait_for
from slider import true_loss

REQUESTS, MOST, BEGUN = 200, 2000, 20
"""Requests of a round, requests at most, and how many of them shall end while they compute."""

AT_ONCE = 24
"""More than run and wait: some are closed while they compute, some in line, some after a refusal."""

FULL_RESET = struct.pack("ii", 1, 0)


async def give_up(port, number, rng):
    """Send a part of a request, or all of it, wait a moment, and go: by a reset or by an end."""
    head = request_head(port, path(**{**ENDLESS, "seed": number}))
    moment = number % 4
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head[: rng.randrange(1, len(head) - 1)] if moment == 0 else head)
        await writer.drain()
        if moment == 2:
            await asyncio.sleep(rng.uniform(0, 0.1))
        elif moment == 3:
            # Computing, in line or already refused.
            with contextlib.suppress(TimeoutError, OSError):
                await asyncio.wait_for(reader.read(1), rng.uniform(0.1, 1.0))
        if rng.random() < 0.5:
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, FULL_RESET)
    finally:
        writer.transport.abort()


async def test_aborted_requests_leave_nothing_behind(serve, figure):
    with serve(max_flops=ENDLESS_FLOPS) as server:
        # Modules loaded by the first request stay in memory.
        assert httpx.get(server.url + path(**FIFTY), timeout=60).status_code == 200
        server.wait_idle(10)
        descriptors, threads = server.descriptors, server.threads
        rng, gate = random.Random(1), asyncio.Semaphore(AT_ONCE)

        async def one(number):
            async with gate:
                await give_up(server.port, number, rng)

        # An aborted request holds the device to the end of an op. So a slow machine needs several rounds.
        sent = 0
        while sent < MOST and server.metrics().total("work_cancelled_total", reason="disconnected") < BEGUN:
            await asyncio.gather(*(one(sent + number) for number in range(REQUESTS)))
            sent += REQUESTS
        figure("requests", sent)
        freed = wait_for(lambda: server.metrics().in_hand == 0, 30, lambda: f"a free slot: {server.metrics().work()}")
        figure("slot is free after the last abort", freed, "s", "< 2")
        work = server.wait_idle(1)
        figure(
            "begun and cancelled", work.total("work_cancelled_total", reason="disconnected"), "requests", f">= {BEGUN}"
        )
        figure("failed", work.total("work_failed_total"), "requests", "== 0")
        wait_for(
            lambda: server.descriptors <= descriptors, 15, lambda: f"{descriptors} descriptors: {server.descriptors}"
        )
        figure("descriptors more than before", server.descriptors - descriptors, "", "<= 0")
        figure("threads more than before", server.threads - threads, "", "<= 0")
        answer = httpx.get(server.url + path("profile.json", **FIFTY, seed=7), timeout=30).raise_for_status()
        assert answer.json()["loss"] == true_loss(**FIFTY, seed=7)
