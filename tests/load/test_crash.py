"""The server dies, is stopped, is replaced: clients come back to the right picture, and it ends in time."""

import asyncio
import contextlib
import time
from contextlib import AsyncExitStack

import httpx
from fault_proxy import FaultProxy
from loads import ENDLESS, ENDLESS_FLOPS, FIFTY, path
from slider import Slider, true_loss

CLIENTS = 4


def spec_of(number):
    """The spec of a client, another one for each."""
    return {**FIFTY, "scale": 1 + number / 100}


def warm(server):
    """Load modules with a first pass, which is not measured."""
    httpx.get(server.url + path(**FIFTY), timeout=60).raise_for_status()


async def sliders_at(stack, address):
    """Four live clients, each with its picture."""
    sliders = [await stack.enter_async_context(Slider(address)) for _ in range(CLIENTS)]
    for number, slider in enumerate(sliders):
        await slider.set(**spec_of(number))
    for slider in sliders:
        await slider.shows(60)
    return sliders


async def right_again(sliders, since):
    """Wait until every client has the picture of its last value, which came after a moment; gives the seconds until the
    last had.
    """
    async with asyncio.timeout(30):
        while not all(slider.frames[-1].at > since and slider.frames[-1].seq == slider.seq for slider in sliders):
            assert not any(slider.errors for slider in sliders)
            await asyncio.sleep(0.02)
    for number, slider in enumerate(sliders):
        assert slider.frames[-1].loss == true_loss(**spec_of(number))
        assert not slider.errors
    return max(0.0, max(slider.frames[-1].at for slider in sliders) - since)


async def test_clients_show_the_right_picture_after_a_crash(serve, figure):
    with serve() as server:
        warm(server)
        async with AsyncExitStack() as stack:
            sliders = await sliders_at(stack, server.address)
            killed = time.monotonic()
            server.kill()
            # While nobody is there a slider is moved: the value set then is the one that counts.
            for number, slider in enumerate(sliders):
                await slider.set(**FIFTY, scale=9)
                await slider.set(**spec_of(number))
            await asyncio.to_thread(server.start)
            started = time.monotonic()
            await right_again(sliders, killed)
            last = max(slider.frames[-1].at for slider in sliders)
            figure("kill -9: right picture after the server is back", max(0.0, last - started), "s", "<= 5")
            figure("kill -9: right picture after the crash", last - killed, "s")


async def test_it_ends_in_time_whatever_computes(serve, figure):
    async def request(client, number):
        with contextlib.suppress(httpx.TransportError):
            return (await client.get(path(**ENDLESS, seed=number))).status_code

    with serve(max_flops=ENDLESS_FLOPS) as server:
        warm(server)
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client, AsyncExitStack() as stack:
            sliders = await sliders_at(stack, server.address)
            requests = [asyncio.create_task(request(client, number)) for number in range(3)]
            async with asyncio.timeout(20):
                while (await asyncio.to_thread(server.metrics)).in_hand < 3:
                    await asyncio.sleep(0.05)
            start = time.monotonic()
            server.terminate()
            status = await asyncio.to_thread(server.wait, 30)
            figure("SIGTERM with requests and sockets open: ends after", time.monotonic() - start, "s", "<= 10")
            assert set(await asyncio.gather(*requests)) <= {503, 504, None}
            assert {code for slider in sliders for code in slider.closed} <= {1001, 1012}
        assert status in (0, -15), status


async def test_a_rolling_restart_of_two_replicas_loses_nothing(serve, figure):
    with serve() as one, serve() as two, FaultProxy([("127.0.0.1", one.port), ("127.0.0.1", two.port)]) as proxy:
        warm(one)
        warm(two)
        seen, stop = [], asyncio.Event()

        async def ask():
            """A client that asks again where a connection breaks or a server is ending."""
            async with httpx.AsyncClient(base_url=f"http://{proxy.address}", timeout=20) as client:
                while not stop.is_set():
                    try:
                        answer = await client.get(path("profile.json", seed=len(seen)))
                        seen.append(answer.status_code)
                    except httpx.TransportError:
                        seen.append(None)
                    await asyncio.sleep(0.05)

        async with AsyncExitStack() as stack:
            sliders = await sliders_at(stack, proxy.address)
            asking = asyncio.create_task(ask())
            took = []
            for server in (one, two):
                # Nobody tells the proxy: it finds out by refusals which replica is there.
                refused, moved = proxy.refused, time.monotonic()
                server.terminate()
                await asyncio.to_thread(server.wait, 30)
                # Those whose replica stayed set the same value anew: every client has a picture of now.
                for number, slider in enumerate(sliders):
                    await slider.set(**spec_of(number))
                took.append(await right_again(sliders, moved))
                # One of two connections asks the one that is gone first.
                async with httpx.AsyncClient(base_url=f"http://{proxy.address}", timeout=20) as client:
                    for _ in range(4):
                        answer = await client.get("/healthz", headers={"Connection": "close"})
                        assert answer.status_code == 200
                assert proxy.refused > refused
                await asyncio.to_thread(server.start)
            stop.set()
            await asking
        figure("rolling restart: right picture after", max(took), "s", "<= 5")
        figure("rolling restart: plain requests answered", seen.count(200), "", ">= 20")
        figure("rolling restart: plain requests to repeat", len(seen) - seen.count(200), "", "<= 4")
        assert set(seen) <= {200, 503, None}, set(seen)
