"""A sweep on a real Dask scheduler with two workers, on loopback."""

import re
import signal
import subprocess
import sys

import pytest

from chainrule.errors import SweepError
from chainrule.spec import ModelSpec
from chainrule.sweeps.pool import OwnPool
from chainrule.sweeps.run import executors, run_sweep, sweep
from chainrule.sweeps.sweep import read_sweep

NET = ModelSpec.from_query(
    "widths=16,16,1&activation=tanh&init=lecun_normal&bias=false&batch=16&step=500&dtype=float64"
)
PLAN = read_sweep(NET, ["scale=0.1:10:4", "depth=2:9:8"], 1, "loss_ratio")
# Dask closes its sockets from other threads.
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        self.scheduler = self.start("scheduler", "--host=127.0.0.1", "--port=0")
        self.address = self.said(self.scheduler, r"tcp://127\.0\.0\.1:\d+")
        self.workers = [self.start("worker", self.address, "--nthreads=1", "--no-nanny") for _ in range(2)]
        for worker in self.workers:
            self.said(worker, "Registered to")

    def start(self, name, *arguments):
        code = f"from distributed.cli.dask_{name} import main; main()"
        arguments = [sys.executable, "-c", code, *arguments, "--no-dashboard"]
        return subprocess.Popen(
            arguments, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def said(self, process, pattern):
        for line in process.stderr:
            if match := re.search(pattern, line):
                return match[0]
        raise AssertionError(f"{process.args} ended")

    def end(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.communicate()


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.end()


def run(cluster, plan, progress=lambda _: None):
    start, workers = executors(1, cluster.address)
    assert workers == 2
    return run_sweep(plan, start=start, workers=workers, progress=progress)


def test_process_pool_and_cluster_give_the_bytes_of_this_process(cluster):
    expected = run_sweep(PLAN).values.tobytes()
    assert run_sweep(PLAN, start=lambda: OwnPool(2), workers=2).values.tobytes() == expected
    assert run(cluster, PLAN).values.tobytes() == expected
    assert sweep(NET, ["scale=1,2"], scheduler=cluster.address, measure="loss").values.shape == (2, 1)


def test_a_worker_of_the_cluster_is_killed(cluster):
    def kill(_):
        cluster.workers[0].send_signal(signal.SIGKILL)

    found = run(cluster, PLAN, kill)
    assert found.reasons == {}
    assert found.values.tobytes() == run_sweep(PLAN).values.tobytes()


def test_a_scheduler_that_vanishes_is_named(cluster):
    def kill(_):
        cluster.scheduler.kill()

    with pytest.raises(SweepError, match="the connection to their scheduler is lost"):
        run(cluster, PLAN, kill)


def test_a_cluster_that_loses_all_its_workers_is_named(cluster, monkeypatch):
    def kill(_):
        for worker in cluster.workers:
            worker.kill()

    monkeypatch.setattr("chainrule.sweeps.conduct.PATIENCE", 1)
    with pytest.raises(SweepError, match="the scheduler has no worker any more"):
        run(cluster, PLAN, kill)


def test_a_scheduler_without_workers_is_refused(cluster):
    for worker in cluster.workers:
        worker.terminate()
        worker.wait()
    with pytest.raises(
        SweepError, match=r"scheduler: tcp://127\.0\.0\.1:\d+ has no worker; start one with `dask worker"
    ):
        executors(1, cluster.address)
