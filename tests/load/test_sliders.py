"""Sliders dragged by 1, 4 and 30 clients at once: all get pictures, and each ends on its own last value."""

import asyncio
import time
from contextlib import AsyncExitStack
from statistics import median

import pytest
from loads import DEFAULT, FIFTY, every
from slider import Slider, true_loss

SECONDS = 10

NETS = {"fifty": FIFTY, "default": DEFAULT}

ALONE = {}
"""Pictures a second that one client gets, by net and how it is dragged: the tests with more come after it."""

EVEN = 0.7
"""A crowd shares less than one client alone gets: its messages take time to read."""


@pytest.fixture(scope="module")
def server(serve):
    with serve() as server:
        yield server


def last_spec(net, number):
    """The value that a client ends on, another for each."""
    return {**NETS[net], "scale": round(0.95 + number / 1000, 3)}


async def flood(slider, net, number, until):
    """60 values a second, whether or not a picture came."""
    async for now in every(1 / 60, until):
        await slider.set(**NETS[net], scale=round(1 + 0.1 * (now % 1), 4))
    await slider.set(**last_spec(net, number))


async def in_turn(slider, net, number, until):
    """The next value as soon as there is a picture of the one before, as the page does."""
    while (now := time.monotonic()) < until:
        await slider.set(**NETS[net], scale=round(1 + 0.1 * (now % 1), 4))
        await slider.shows(30)
    await slider.set(**last_spec(net, number))


@pytest.mark.parametrize("clients", [1, 4, 30])
@pytest.mark.parametrize(("net", "drag"), [("fifty", flood), ("fifty", in_turn), ("default", flood)])
async def test_sliders_each_get_pictures_and_end_on_their_own_last_value(server, figure, net, drag, clients):
    async with AsyncExitStack() as stack:
        sliders = [await stack.enter_async_context(Slider(server.address)) for _ in range(clients)]
        for slider in sliders:
            await slider.set(**NETS[net])
        # The first picture has a topology with it, and a server's first picture loads what it needs.
        for slider in sliders:
            await slider.shows(60)
        start = time.monotonic()
        until = start + SECONDS
        await asyncio.gather(*(drag(slider, net, number, until) for number, slider in enumerate(sliders)))
        rates = [sum(start < frame.at <= until for frame in slider.frames) / SECONDS for slider in sliders]
        ended = time.monotonic()
        last = [await slider.shows(30) for slider in sliders]
        settled = max(shown.at for shown in last) - ended
        assert all(slider.connections == 1 for slider in sliders)
    name = f"{clients} × {net}, {'flood' if drag is flood else 'one in flight'}"
    alone = ALONE.setdefault((net, drag), rates[0])
    figure(f"{name}: slowest client", min(rates), "frames/s", ">= 1" if net == "default" else "> 0")
    if net != "default":
        # How fast fifty layers are is the machine's to say, as one client alone tells; what a crowd adds is ours.
        figure(f"{name}: slowest client, of an even share", min(rates) * clients / alone, "", f">= {EVEN}")
    figure(f"{name}: median client", median(rates), "frames/s")
    figure(f"{name}: last value shown after", max(0.0, settled), "s", "<= 5")
    assert [shown.loss for shown in last] == [true_loss(**last_spec(net, number)) for number in range(clients)]
    server.wait_idle(10)
