"""The slots of all devices: their list and their shutdown."""

import asyncio
import threading

import pytest

from chainrule.errors import StoppedError
from chainrule.stopping import check
from chainrule.web.compute import Compute, Device, list_devices
from chainrule.web.metrics import Metrics


def endless(began):
    began.set()
    while True:
        check()


def test_devices_have_slots_of_their_own():
    compute = Compute([Device("cpu", ""), Device("cuda", "")], 1, Metrics())
    assert tuple(compute.slots) == ("cpu", "cuda")
    assert compute.slots["cpu"] is not compute.slots["cuda"]
    assert not compute.closing
    asyncio.run(compute.close())
    assert compute.closing


def test_the_cpu_is_always_listed():
    assert list_devices()[0].name == "cpu"
    assert list_devices()[0].description


@pytest.mark.parametrize("seconds", [0, 0.3])
def test_shutdown_lets_requests_finish_for_a_while(seconds):
    compute = Compute([Device("cpu", "")], 1, Metrics(), shutdown_seconds=seconds)
    began = threading.Event()

    async def scenario():
        task = asyncio.create_task(compute.slots["cpu"].run(lambda: endless(began)))
        await asyncio.to_thread(began.wait, 10)
        start = asyncio.get_running_loop().time()
        # Calling it twice changes nothing.
        compute.begin_shutdown()
        compute.begin_shutdown()
        assert compute.closing
        await asyncio.wait_for(compute.shutdown.wait(), 5)
        with pytest.raises(StoppedError) as caught:
            await task
        return caught.value.reason, asyncio.get_running_loop().time() - start

    reason, waited = asyncio.run(scenario())
    assert reason == "shutdown"
    assert waited >= seconds - 0.05


def test_free_memory_is_given_back_after_work(monkeypatch):
    monkeypatch.setattr("chainrule.web.compute.GIVE_BACK_SECONDS", 0.01)
    given = []
    monkeypatch.setattr("chainrule.web.compute.rest_engine", lambda: given.append("drawings"))
    monkeypatch.setattr("chainrule.web.compute.return_free_pages", lambda: given.append("passes"))

    async def scenario():
        compute = Compute([Device("cpu", "")], 1, Metrics())
        await compute.slots["cpu"].run(int)
        async with asyncio.timeout(10):
            while len(given) < 2:
                await asyncio.sleep(0.01)
        await compute.close()

    asyncio.run(scenario())
    assert given == ["drawings", "passes"]


def test_close_stops_work_and_waits_for_it():
    compute = Compute([Device("cpu", "")], 1, Metrics())
    began = threading.Event()

    async def scenario():
        task = asyncio.create_task(compute.slots["cpu"].run(lambda: endless(began)))
        await asyncio.to_thread(began.wait, 10)
        await compute.close()
        assert compute.slots["cpu"].running_seconds == 0
        with pytest.raises(StoppedError):
            await task

    asyncio.run(scenario())
