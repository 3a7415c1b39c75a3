"""Requests and live clients over a bad network: late, narrow, silent, broken, half-closed. They end on right values."""

import asyncio
import socket
import time
from contextlib import AsyncExitStack

import httpx
import pytest
from fault_proxy import FaultProxy
from loads import FIFTY, every, path
from slider import Slider, true_loss

CLIENTS = 4

SETTLED = 5
"""Seconds after which the picture of the last value is there, once the network lets it pass."""


@pytest.fixture(scope="module")
def server(serve):
    with serve() as server:
        httpx.get(server.url + path(**FIFTY), timeout=60).raise_for_status()
        yield server


@pytest.fixture
def proxy(server):
    with FaultProxy([("127.0.0.1", server.port)]) as proxy:
        yield proxy


def last_spec(number):
    return {**FIFTY, "scale": 1 + number / 100}


async def ask(client, number):
    """A request, made again until it is answered; gives how often it was made."""
    for tries in range(1, 100):
        try:
            answer = await client.get(path("profile.json", **FIFTY, seed=number))
        except httpx.TransportError:
            await asyncio.sleep(0.1)
            continue
        if answer.status_code == 200:
            assert answer.json()["loss"] == true_loss(**FIFTY, seed=number)
            return tries
        assert answer.status_code == 503
        await asyncio.sleep(float(answer.headers["retry-after"]))
    raise AssertionError("no answer in 100 tries")


async def flood(slider, until):
    """Thirty values a second, whether or not a picture came."""
    async for now in every(1 / 30, until):
        await slider.set(**FIFTY, scale=round(1 + 0.1 * (now % 1), 4))


async def in_turn(slider, until):
    """The next value as soon as there is a picture of the one before, as the page does."""
    while (now := time.monotonic()) < until:
        await slider.set(**FIFTY, scale=round(1 + 0.1 * (now % 1), 4))
        await slider.shows(30)


def under(proxy, faults, drag=flood, seconds=6):
    """Four sliders and a plain client, while `faults` spoils their network; gives how long the last values took.

    The faults end before the last values count, unless they are such that everything passes in the end.
    """

    async def one(slider, number, until):
        await drag(slider, until)
        await slider.set(**last_spec(number))

    async def main():
        async with AsyncExitStack() as stack:
            sliders = [await stack.enter_async_context(Slider(proxy.address)) for _ in range(CLIENTS)]
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://{proxy.address}", timeout=20))
            until = time.monotonic() + seconds
            asked = asyncio.create_task(ask_all(client, until))
            await asyncio.gather(faults(until), *(one(slider, number, until) for number, slider in enumerate(sliders)))
            start = time.monotonic()
            shown = [await slider.shows(30) for slider in sliders]
            assert [each.loss for each in shown] == [true_loss(**last_spec(number)) for number in range(CLIENTS)]
            settled = max(0.0, max(each.at for each in shown) - start)
            return settled, sum(slider.connections - 1 for slider in sliders), await asked

    async def ask_all(client, until):
        answers, tries = 0, 0
        while time.monotonic() < until:
            tries += await ask(client, answers)
            answers += 1
        return answers, tries - answers

    return asyncio.run(main())


async def nothing(_):
    """The network is as it was set up."""


def test_two_hundred_milliseconds_each_way(proxy, figure):
    proxy.latency = 0.2
    settled, reconnected, (answers, repeated) = under(proxy, nothing)
    figure("200 ms each way: last value shown after", settled, "s", f"<= {SETTLED}")
    figure("200 ms each way: plain answers", answers, "", ">= 3")
    assert (reconnected, repeated) == (0, 0)


def test_connections_that_break_at_random(proxy, figure):
    async def faults(until):
        proxy.drop_chance = 0.02
        await asyncio.sleep(until - time.monotonic())
        proxy.drop_chance = 0.0

    settled, reconnected, (answers, _) = under(proxy, faults)
    figure("random breaks: connections broken", proxy.dropped, "", ">= 5")
    figure("random breaks: live connections made again", reconnected, "", ">= 1")
    figure("random breaks: plain answers", answers, "", ">= 1")
    figure("random breaks: last value shown after", settled, "s", f"<= {SETTLED}")


def test_all_connections_break_at_once_and_none_is_taken_for_a_while(proxy, figure):
    async def faults(until):
        await asyncio.sleep(2)
        proxy.refuse = True
        proxy.drop_all()
        await asyncio.sleep(until - time.monotonic())
        proxy.refuse = False

    settled, reconnected, _ = under(proxy, faults)
    figure("nobody there for 4 s: last value shown after", settled, "s", f"<= {SETTLED}")
    assert reconnected == CLIENTS


def test_silence(proxy, figure):
    async def faults(until):
        await asyncio.sleep(2)
        proxy.blackhole = True
        await asyncio.sleep(until - time.monotonic())
        proxy.blackhole = False

    settled, _, (answers, _) = under(proxy, faults)
    figure("silence for 4 s: last value shown after", settled, "s", f"<= {SETTLED}")
    figure("silence for 4 s: plain answers", answers, "", ">= 2")


@pytest.mark.parametrize("side", ["client", "server"])
def test_half_closed_connections(proxy, figure, side):
    async def faults(until):
        while time.monotonic() < until - 1:
            await asyncio.sleep(1)
            proxy.half_close(side)

    settled, reconnected, (answers, _) = under(proxy, faults)
    figure(f"half-closed towards the {side}: last value shown after", settled, "s", f"<= {SETTLED}")
    assert reconnected >= CLIENTS
    assert answers >= 1


def test_one_of_two_replicas_is_gone(server, figure):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nobody = gone.getsockname()
    with FaultProxy([nobody, ("127.0.0.1", server.port)]) as proxy:

        async def faults(until):
            while time.monotonic() < until - 1:
                await asyncio.sleep(1)
                proxy.drop_all()

        settled, reconnected, (answers, _) = under(proxy, faults)
        figure("one of two replicas gone: connections it refused", proxy.refused, "", ">= 3")
        figure("one of two replicas gone: last value shown after", settled, "s", f"<= {SETTLED}")
        assert reconnected >= CLIENTS
        assert answers >= 1


def test_a_narrow_line(proxy, figure):
    # A frame of fifty layers has 130 kB, a third of a second of such a line. Who asks without waiting for pictures
    # fills the line's buffers and sees them late; the page waits.
    proxy.bytes_per_second = 400_000
    settled, reconnected, (answers, _) = under(proxy, nothing, in_turn)
    figure("400 kB/s: last value shown after", settled, "s", f"<= {SETTLED}")
    assert reconnected == 0
    assert answers >= 1


def test_afterwards_nothing_is_left(server, figure):
    work = server.wait_idle(10)
    figure("work accepted", work.total("work_accepted_total"), "", ">= 100")
    figure("work failed", work.total("work_failed_total"), "", "== 0")
