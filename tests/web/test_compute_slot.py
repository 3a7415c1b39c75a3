"""The compute slot: one thread, one line, deadlines, cancellation and accounts."""

import asyncio
import gc
import math
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from functools import partial

import pytest
import torch
from accounts import closed
from gate import Gate

from chainrule.errors import BusyError, DeadlineError, MemoryLimitError, StoppedError, TraceError
from chainrule.web import compute as compute_module
from chainrule.web.compute import ComputeSlot, Work

LONG_CHAIN = """
import asyncio, torch
from chainrule.web.compute import ComputeSlot, Work

def chain():
    x, nodes = torch.ones(1, requires_grad=True), []
    for _ in range(100_000):
        x = x + 0
        nodes.append(x.grad_fn)
    made = len(nodes)
    del nodes, x
    return made

async def main():
    slot = ComputeSlot("cpu", queue=2)
    print(await slot.run(chain))
    slot.close()

asyncio.run(main())
"""


@pytest.mark.long
def test_a_long_autograd_chain_is_freed_without_stack_overflow():
    # A stack of the usual size would overflow and end the process.
    run = subprocess.run([sys.executable, "-c", LONG_CHAIN], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "100000\n"), run.stderr


@pytest.fixture
def slot():
    slot = ComputeSlot("cpu", queue=2)
    yield slot
    slot.close()


@pytest.fixture
def gate():
    return Gate(stubborn=True)


def ends(slot):
    """How often requests ended so, once it is known that the accounts add up."""
    return Counter({end: count for (kind, end), count in closed(slot.metrics).items() if kind == "request"})


async def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.002)


# The line ------------------------------------------------------------------------------------------------------------
async def test_one_at_a_time_and_first_come_first_served(slot, gate):
    tasks = gate.fill(slot)
    await until(lambda: gate.running == 1 and slot.waiting == 2)
    # The event loop is free while the device is busy.
    assert slot.busy
    assert slot.running_seconds > 0
    gate.open.set()
    assert await asyncio.gather(*tasks) == ["a", "b", "c"]
    assert gate.order == ["a", "b", "c"]
    assert gate.most == 1
    assert slot.running_seconds == 0


async def test_a_full_queue_refuses_at_once_with_a_wait(slot, gate):
    tasks = gate.fill(slot)
    await until(lambda: slot.full)
    with pytest.raises(BusyError) as caught:
        await slot.run(gate.job("d"))
    # Refused while all jobs before it wait for the gate.
    assert gate.order == []
    gate.open.set()
    await asyncio.gather(*tasks)
    assert not slot.full
    await slot.run(gate.job("e"))
    error = caught.value
    assert (error.status, error.code, error.limit) == (503, "busy", 2)
    assert "CHAINRULE_QUEUE" in error.message
    assert error.retry_after >= 1
    assert gate.order == ["a", "b", "c", "e"]
    # A refusal does not count as work.
    assert ends(slot) == {"accepted": 4, "done": 4}


async def test_the_proposed_wait_counts_everyone_in_line(slot, gate):
    slot._usual.update(request=3.0, picture=0.5)

    async def stands():
        async with slot.turn("picture"):
            pass

    # Three requests of 3 s, and ten sockets that wait with them for 0.5 s each.
    assert slot.free_in == 0
    tasks = gate.fill(slot)
    tasks += [asyncio.create_task(stands()) for _ in range(10)]
    await until(lambda: slot.in_line == 12 and gate.running)
    with pytest.raises(BusyError) as caught:
        await slot.run(gate.job("d"))
    gate.open.set()
    await asyncio.gather(*tasks)
    assert caught.value.retry_after == 14


async def test_long_running_work_lengthens_the_proposed_wait(slot, gate):
    tasks = gate.fill(slot, 100)
    await until(lambda: gate.running)
    assert slot.running_seconds > 0
    # After 20 s it is expected to take as long again, and so are the two behind it.
    slot._work.started -= 20
    assert slot.free_in == pytest.approx(60, abs=5)
    # Its deadline bounds the estimate.
    slot._work.deadline -= 95
    assert slot.free_in == pytest.approx(5 + 40, abs=5)
    gate.open.set()
    await asyncio.gather(*tasks)


async def test_usual_durations_are_learned_by_kind(slot):
    slot._usual["request"] = 100.0
    for _ in range(20):
        await slot.run(partial(time.sleep, 0.02))
    # Twenty steps of a fifth leave 1.15 of the hundred; what a busy machine adds to a sleep is less than half a second.
    assert slot._usual["request"] == pytest.approx(100 * 0.8**20 + 0.02, abs=0.5)
    assert slot._usual["picture"] == compute_module.FIRST_GUESS["picture"]


async def test_a_turn_waits_in_a_full_queue_in_order(slot, gate):

    async def patient():
        async with slot.turn("picture") as waited:
            assert waited >= 0
            return await slot.compute(Work("picture", slot.metrics), gate.job("patient"), 100, "")

    tasks = gate.fill(slot)
    await until(lambda: slot.full)
    tasks.append(asyncio.create_task(patient()))
    await until(lambda: slot.in_line == 3)
    gate.open.set()
    await asyncio.gather(*tasks)
    assert gate.order == ["a", "b", "c", "patient"]
    assert gate.most == 1
    assert closed(slot.metrics)["picture", "done"] == 1


async def test_failing_work_passes_its_error_on_and_frees_the_slot(slot):
    def fail(error):
        raise error

    with pytest.raises(ZeroDivisionError, match="as planned"):
        await slot.run(lambda: fail(ZeroDivisionError("as planned")))
    for deadline in (10, math.inf):
        with pytest.raises(TimeoutError, match="of the work"):
            await slot.run(lambda: fail(TimeoutError("of the work, not of the line")), deadline)
    with pytest.raises(TraceError):
        await slot.run(lambda: fail(TraceError("cannot be recorded")))
    assert not slot.busy
    assert await slot.run(lambda: "next") == "next"
    assert ends(slot) == {"accepted": 5, "done": 1, "failed internal": 3, "failed trace_failed": 1}


# Being given up ------------------------------------------------------------------------------------------------------
async def test_a_cancelled_caller_leaves_the_line(slot, gate):
    first = asyncio.create_task(slot.run(gate.job("a")))
    second = asyncio.create_task(slot.run(gate.job("b")))
    await until(lambda: slot.waiting == 1)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert slot.waiting == 0
    # The thread does not stop at once, and nothing runs beside it.
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    third = asyncio.create_task(slot.run(gate.job("c")))
    await until(lambda: slot.waiting == 1)
    assert slot.busy
    assert ends(slot) == {"accepted": 3, "in_hand": 2, "cancelled disconnected": 1}
    gate.open.set()
    await third
    assert gate.order == ["a", "c"]
    assert gate.most == 1
    # The result of the first was dropped.
    assert ends(slot) == {"accepted": 3, "cancelled disconnected": 2, "done": 1}


async def test_work_that_ignores_its_deadline_keeps_the_slot_busy(slot, gate, monkeypatch):
    monkeypatch.setattr(compute_module, "PATIENCE_SECONDS", 0.05)
    with pytest.raises(DeadlineError):
        await slot.run(gate.job("stubborn"), 0.5)
    assert gate.running == 1
    assert slot.busy
    assert ends(slot)["in_hand"] == 1
    after = asyncio.create_task(slot.run(gate.job("after")))
    await until(lambda: slot.waiting == 1)
    gate.open.set()
    await after
    assert gate.most == 1
    assert gate.order == ["stubborn", "after"]
    assert ends(slot)["timed_out"] == 1


async def test_an_error_while_giving_memory_back_is_logged(monkeypatch, caplog):
    monkeypatch.setattr(compute_module, "GIVE_BACK_SECONDS", 0.01)

    def fail():
        raise OSError("no such thing")

    slot = ComputeSlot("cpu", queue=2, give_back=fail)
    await slot.run(int)
    await until(lambda: caplog.records)
    assert await slot.run(lambda: "next") == "next"
    slot.close()
    assert "free memory on cpu could not be returned" in caplog.text
    assert "no such thing" in caplog.text


async def test_a_deadline_in_line_is_answered_with_a_wait(slot, gate):
    slot._usual["request"] = 7.0
    first = asyncio.create_task(slot.run(gate.job("a")))
    await until(lambda: gate.running)
    with pytest.raises(BusyError) as caught:
        await slot.run(gate.job("b"), 0.05)
    assert slot.waiting == 0
    gate.open.set()
    await first
    error = caught.value
    assert (error.status, error.code, error.limit, error.retry_after) == (503, "busy", 0.05, 7)
    assert "CHAINRULE_DEADLINE_SECONDS" in error.message
    assert gate.order == ["a"]
    assert ends(slot) == {"accepted": 2, "done": 1, "timed_out": 1}


async def test_time_in_line_counts_towards_the_deadline(slot, gate):
    second = Gate()
    first = asyncio.create_task(slot.run(gate.job("a")))
    await until(lambda: gate.running)
    asked = time.perf_counter()
    task = asyncio.create_task(slot.run(second.job("b"), 1000))
    await until(lambda: slot.waiting == 1)
    waiting = time.perf_counter()
    gate.open.set()
    await first
    await until(lambda: second.running)
    assert asked <= slot._work.deadline - 1000 <= waiting
    second.open.set()
    await task


async def test_a_caller_cancelled_at_its_turn_passes_the_turn_on(slot):
    async with slot.turn("request"):
        leaving = asyncio.create_task(slot.run(lambda: "left"))
        staying = asyncio.create_task(slot.run(lambda: "stayed"))
        await until(lambda: slot.waiting == 2)
    # The turn is passed on, and its task has not resumed yet.
    assert slot.waiting == 1
    leaving.cancel()
    left, stayed = await asyncio.gather(leaving, staying, return_exceptions=True)
    assert isinstance(left, asyncio.CancelledError)
    assert stayed == "stayed"
    assert not slot.busy
    closed(slot.metrics)


async def test_closing_stops_all_work(slot):
    gate = Gate()
    tasks = gate.fill(slot)
    await until(lambda: gate.running and slot.waiting == 2)
    slot.close()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    with pytest.raises(StoppedError):
        await slot.run(lambda: "too late")
    await slot.wait_closed(5)
    assert [(each.status, each.code, each.reason) for each in errors] == [(503, "stopped", "shutdown")] * 3
    assert [name for name, *_ in gate.stopped] == ["a"]
    assert ends(slot) == {"accepted": 4, "cancelled shutdown": 4}


# Memory --------------------------------------------------------------------------------------------------------------
@pytest.fixture
def no_collection():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory.")], ids=["host", "device"]
)
async def test_out_of_memory_frees_everything_and_the_next_work_computes(error):
    forgot, held = [], []
    slot = ComputeSlot("cpu", 2, let_go=lambda: forgot.append(threading.current_thread().name))

    def greedy():
        tensor = torch.zeros(10)
        held.append(weakref.ref(tensor))
        cycle = [tensor]
        cycle.append(cycle)
        raise error

    with pytest.raises(MemoryLimitError) as caught:
        await slot.run(greedy)
    # The next work needs the memory at once.
    assert held[0]() is None
    assert await slot.run(lambda: "next") == "next"
    assert (caught.value.status, caught.value.code) == (507, "out_of_memory")
    assert forgot == ["compute-cpu_0"]
    assert ends(slot)["failed out_of_memory"] == 1
    slot.close()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("error", [StoppedError("disconnected"), TraceError("cannot be recorded"), ValueError("bug")])
async def test_an_error_holds_no_tensors(slot, error):
    held = []

    def work():
        tensor = torch.zeros(10)
        held.append(weakref.ref(tensor))
        raise error

    with pytest.raises(type(error)) as caught:
        await slot.run(work)
    assert held[0]() is None
    assert caught.value is error
    # The traceback still names its origin.
    assert "work" in [entry.name for entry in caught.traceback]
