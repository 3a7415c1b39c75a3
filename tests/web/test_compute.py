"""The slots of all devices: their list, their free memory and their shutdown."""

import asyncio
import threading

import pytest

from chainrule.errors import StoppedError
from chainrule.stopping import check
from chainrule.web import compute as compute_module
from chainrule.web.compute import Compute, Device, list_devices
from chainrule.web.metrics import Metrics


def make(*names, **options):
    return Compute([Device(name, "") for name in names], 1, Metrics(), **options)


def test_devices_have_separate_slots_and_the_cpu_is_always_listed():
    compute = make("cpu", "cuda")
    assert tuple(compute.slots) == ("cpu", "cuda")
    assert compute.slots["cpu"] is not compute.slots["cuda"]
    assert list_devices()[0].name == "cpu"
    assert list_devices()[0].description


@pytest.mark.parametrize("seconds", [0, 0.3, None])
async def test_shutdown_lets_requests_finish_for_a_while(seconds):
    """None: the server closes at once."""
    compute = make("cpu", shutdown_seconds=seconds or 0)
    began = threading.Event()

    def endless():
        began.set()
        while True:
            check()

    task = asyncio.create_task(compute.slots["cpu"].run(endless))
    await asyncio.to_thread(began.wait, 10)
    start = asyncio.get_running_loop().time()
    assert not compute.closing
    if seconds is None:
        await compute.close()
        assert compute.slots["cpu"].running_seconds == 0
    else:
        # Calling it twice changes nothing.
        compute.begin_shutdown()
        compute.begin_shutdown()
        await asyncio.wait_for(compute.shutdown.wait(), 5)
    assert compute.closing
    with pytest.raises(StoppedError) as caught:
        await task
    reason, waited = caught.value.reason, asyncio.get_running_loop().time() - start
    assert reason == "shutdown"
    assert waited >= (seconds or 0) - 0.05


async def test_free_memory_is_given_back_in_the_compute_thread_after_work(monkeypatch):
    monkeypatch.setattr(compute_module, "GIVE_BACK_SECONDS", 0.01)
    given = []
    for name in ("rest_engine", "return_free_pages"):
        monkeypatch.setattr(
            compute_module, name, lambda name=name: given.append((name, threading.current_thread().name))
        )
    compute = make("cpu")
    for times in (1, 2):
        await compute.slots["cpu"].run(int)
        async with asyncio.timeout(10):
            while len(given) < 2 * times:
                await asyncio.sleep(0.01)
    await compute.slots["cpu"].run(int)
    await compute.close()
    assert given == [("rest_engine", "compute-cpu_0"), ("return_free_pages", "compute-cpu_0")] * 2, "not once closed"
