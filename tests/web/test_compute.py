"""The compute slot: one thread, one line, a place for everyone who may have one."""

import asyncio
import threading
import time

import pytest

from chainrule.errors import BusyError
from chainrule.web.compute import Compute, ComputeSlot, Device, list_devices


@pytest.fixture
def slot():
    slot = ComputeSlot("cpu", queue=2)
    yield slot
    slot.close()


class Gate:
    """Work that waits until it is let go, and knows how many run at once."""

    def __init__(self):
        self.open = threading.Event()
        self.running = 0
        self.most = 0
        self.order = []

    def work(self, name):
        self.running += 1
        self.most = max(self.most, self.running)
        assert self.open.wait(10)
        self.order.append(name)
        self.running -= 1
        return name, threading.current_thread()


async def until(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def test_work_runs_in_one_thread_off_the_event_loop(slot):
    async def scenario():
        return [await slot.run(threading.current_thread) for _ in range(3)]

    threads = asyncio.run(scenario())
    assert len(set(threads)) == 1
    assert threads[0] is not threading.main_thread()
    assert threads[0].name.startswith("compute-cpu")


def test_one_at_a_time_and_first_come_first_served(slot):
    gate = Gate()

    async def scenario():
        tasks = []
        for name in "abc":
            tasks.append(asyncio.create_task(slot.run(gate.work, name)))
            await asyncio.sleep(0)
        await until(lambda: gate.running == 1 and slot.waiting == 2)
        # The loop is free while the device is not.
        assert slot.busy
        gate.open.set()
        return [name for name, _ in await asyncio.gather(*tasks)]

    assert asyncio.run(scenario()) == ["a", "b", "c"]
    assert gate.order == ["a", "b", "c"]
    assert gate.most == 1


def test_a_full_line_turns_away_at_once_and_says_for_how_long(slot):
    gate = Gate()

    async def scenario():
        tasks = [asyncio.create_task(slot.run(gate.work, name)) for name in "abc"]
        await until(lambda: slot.full)
        with pytest.raises(BusyError) as caught:
            await slot.run(gate.work, "d")
        # Turned away while the jobs before it still stand: they do not end until the gate opens.
        assert gate.order == []
        gate.open.set()
        await asyncio.gather(*tasks)
        assert not slot.full
        await slot.run(gate.work, "e")
        return caught.value

    error = asyncio.run(scenario())
    assert (error.status, error.code, error.limit) == (503, "busy", 2)
    assert error.retry_after >= 1
    assert gate.order == ["a", "b", "c", "e"]


def test_the_proposed_wait_grows_with_how_long_runs_take(slot):
    slot._seconds = 3.0
    gate = Gate()

    async def scenario():
        tasks = [asyncio.create_task(slot.run(gate.work, name)) for name in "abc"]
        await until(lambda: slot.full)
        with pytest.raises(BusyError) as caught:
            await slot.run(gate.work, "d")
        gate.open.set()
        await asyncio.gather(*tasks)
        return caught.value.retry_after

    assert asyncio.run(scenario()) == 9


def test_a_patient_caller_gets_a_place_in_a_full_line_and_keeps_the_order(slot):
    gate = Gate()

    async def patient():
        async with slot.turn():
            return await slot.compute(gate.work, "patient")

    async def scenario():
        tasks = [asyncio.create_task(slot.run(gate.work, name)) for name in "abc"]
        await until(lambda: slot.full)
        tasks.append(asyncio.create_task(patient()))
        await asyncio.sleep(0.01)
        gate.open.set()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())
    assert gate.order == ["a", "b", "c", "patient"]
    assert gate.most == 1


def test_failing_work_passes_its_error_on_and_frees_the_slot(slot):
    def fail():
        raise ZeroDivisionError("as planned")

    async def scenario():
        with pytest.raises(ZeroDivisionError, match="as planned"):
            await slot.run(fail)
        assert not slot.busy
        return await slot.run(lambda: "next")

    assert asyncio.run(scenario()) == "next"


def test_a_caller_that_goes_away_leaves_the_line(slot):
    gate = Gate()

    async def scenario():
        first = asyncio.create_task(slot.run(gate.work, "a"))
        second = asyncio.create_task(slot.run(gate.work, "b"))
        await until(lambda: slot.waiting == 1)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert slot.waiting == 0
        # What runs cannot be stopped, but nothing ever runs beside it.
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        third = asyncio.create_task(slot.run(gate.work, "c"))
        await asyncio.sleep(0.01)
        gate.open.set()
        await third

    asyncio.run(scenario())
    assert gate.order == ["a", "c"]
    assert gate.most == 1


def test_no_queue_means_no_waiting():
    slot = ComputeSlot("cpu", queue=0)
    gate = Gate()

    async def scenario():
        assert not slot.full
        task = asyncio.create_task(slot.run(gate.work, "a"))
        await until(lambda: gate.running == 1)
        assert slot.full
        with pytest.raises(BusyError):
            await slot.run(gate.work, "b")
        gate.open.set()
        await task

    asyncio.run(scenario())
    slot.close()


def test_devices_have_slots_of_their_own():
    compute = Compute([Device("cpu", ""), Device("cuda", "")], queue=1)
    assert compute.device_names == ("cpu", "cuda")
    assert compute.slots["cpu"] is not compute.slots["cuda"]
    compute.close()


def test_the_cpu_is_always_there():
    assert list_devices()[0].name == "cpu"
    assert list_devices()[0].description
