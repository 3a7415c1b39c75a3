"""Work that waits, and what became of it."""

import asyncio
import threading
import time
from functools import partial

from chainrule.stopping import check


class Gate:
    """Work that waits for `open`, and can be stopped unless it is stubborn."""

    def __init__(self, stubborn=False):
        self.open = threading.Event()
        self.stubborn = stubborn
        self.running = self.most = 0
        self.began, self.order, self.stopped = [], [], []

    def work(self, name):
        start = time.perf_counter()
        self.began.append(name)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            while not self.open.wait(0.001):
                if not self.stubborn:
                    check()
            self.order.append(name)
            return name
        except Exception as error:
            self.stopped.append((name, getattr(error, "reason", error.code), time.perf_counter() - start))
            raise
        finally:
            self.running -= 1

    def job(self, name):
        return partial(self.work, name)

    def fill(self, slot, *deadline):
        """Three jobs: one runs, and two fill a queue of two."""
        return [asyncio.create_task(slot.run(self.job(name), *deadline)) for name in "abc"]
