"""Ten minutes of everything at once: memory, descriptors and threads stay where they were, and the accounts close."""

import asyncio
import contextlib
import random
import time
from collections import Counter

import httpx
from loads import DEFAULT, FIFTY, SECOND, path, percentile, request_head, slow_reader
from served import wait_for
from slider import Slider

from chainrule.export.formats import FORMATS
from chainrule.web.compute import GIVE_BACK_SECONDS

PLANNED = {200, 304, 400, 404, 405, 413, 415, 422, 501, 503, 504, 507}

FORMS = [*(form.file for form in FORMATS.values()), "profile.json"]

PAGES = """/ /healthz /readyz /metrics /openapi.json /foundations/matmul.json?m=5&k=20&n=10 /foundations/einsum.json
/foundations/gradcheck.json /foundations/styles /api/v1/presets.json /static/explorer.js""".split()

BAD = (
    ("GET", "/api/v1/trace.json?widths=no", b""),
    ("GET", "/api/v1/trace.json?widths=100x9999", b""),
    ("GET", "/api/v1/tensor.json?name=nothing", b""),
    ("GET", "/static/../../../etc/passwd", b""),
    ("POST", "/api/v1/trace", b"{"),
    ("POST", "/api/v1/trace", b'{"widths": 3}'),
    ("POST", "/api/v1/trace", b" " * 70_000),
    ("DELETE", "/api/v1/trace", b""),
)

MEBIBYTE = 1 << 20


class Mix:
    """Clients of every kind until a moment; what they were answered is counted."""

    def __init__(self, server, until):
        self.server = server
        self.until = until
        self.answers = Counter()
        self.slowest = 0.0
        self.stopped = 0

    def over(self):
        return time.monotonic() >= self.until

    async def timed(self, awaitable):
        """Nothing hangs: every operation has half a minute."""
        start = time.monotonic()
        async with asyncio.timeout(30):
            value = await awaitable
        self.slowest = max(self.slowest, time.monotonic() - start)
        return value

    async def asks(self, rng):
        """Requests of all formats and pages, some heavy, some known already."""
        async with httpx.AsyncClient(base_url=self.server.url, timeout=30) as client:
            tag = ""
            while not self.over():
                draw = rng.random()
                if draw < 0.25:
                    target = rng.choice(PAGES)
                elif draw < 0.3:
                    target = path(**SECOND, seed=rng.randrange(1000))
                else:
                    target = path(rng.choice(FORMS), **rng.choice((FIFTY, DEFAULT)), seed=rng.randrange(1000))
                headers = {"If-None-Match": tag} if tag and rng.random() < 0.2 else {}
                answer = await self.timed(client.get(target, headers=headers))
                tag = answer.headers.get("etag", "")
                self.answers[answer.status_code] += 1
                if answer.status_code == 503 and target not in ("/readyz",):
                    await asyncio.sleep(min(2.0, float(answer.headers["retry-after"])))
                await asyncio.sleep(rng.uniform(0, 0.2))

    async def errs(self, rng):
        """Bad input of every kind."""
        async with httpx.AsyncClient(base_url=self.server.url, timeout=30) as client:
            while not self.over():
                method, target, body = rng.choice(BAD)
                headers = {"Content-Type": "application/json"} if body else {}
                answer = await self.timed(client.request(method, target, content=body, headers=headers))
                self.answers[answer.status_code] += 1
                assert 400 <= answer.status_code < 500, (method, target, answer.status_code)
                await asyncio.sleep(rng.uniform(0, 0.5))

    async def slides(self, rng):
        """Live clients that come, drag for a while and go, some in the middle of a picture."""
        while not self.over():
            net = rng.choice((FIFTY, DEFAULT))
            async with Slider(self.server.address) as slider:
                for _ in range(rng.randrange(1, 120)):
                    await slider.set(**net, scale=round(rng.uniform(0.5, 2), 3))
                    await asyncio.sleep(rng.uniform(0, 1 / 20))
                if rng.random() < 0.7:
                    await self.timed(slider.answered(slider.seq, 30))
                # A picture may take too long on a busy machine; no other error is allowed.
                codes = [error["error"]["code"] for error in slider.errors]
                assert set(codes) <= {"deadline_exceeded"}, slider.errors
                self.stopped += len(codes)
            await asyncio.sleep(rng.uniform(0, 1))

    async def gives_up(self, rng):
        """Requests that are closed at any moment."""
        while not self.over():
            _, writer = await self.timed(asyncio.open_connection("127.0.0.1", self.server.port))
            head = request_head(self.server.port, path(**rng.choice((SECOND, FIFTY)), seed=rng.randrange(1000)))
            with contextlib.suppress(OSError):
                writer.write(head if rng.random() < 0.7 else head[: rng.randrange(len(head))])
                await asyncio.sleep(rng.uniform(0, 0.5))
            writer.transport.abort()
            await asyncio.sleep(rng.uniform(0, 1))

    async def dawdles(self, rng):
        """Readers that take nothing of a large answer until they are closed, or go."""
        loop = asyncio.get_running_loop()
        request = request_head(self.server.port, path("trace.html", **FIFTY))
        while not self.over():
            connection = await self.timed(slow_reader(self.server.port))
            with contextlib.suppress(OSError):
                await self.timed(loop.sock_sendall(connection, 2 * request))
                await asyncio.sleep(rng.uniform(1, 15))
            connection.close()

    async def run(self):
        rngs = [random.Random(seed) for seed in range(9)]
        clients = [*[self.asks] * 3, self.errs, *[self.slides] * 2, self.gives_up, *[self.dawdles] * 2]
        async with asyncio.TaskGroup() as group:
            for client, rng in zip(clients, rngs, strict=True):
                group.create_task(client(rng))


async def watch(server, seen, until):
    """Memory, every second."""
    while time.monotonic() < until:
        seen.append((time.monotonic(), server.rss_bytes))
        await asyncio.sleep(1)


def floor(seen):
    """Memory between two heavy passes in MiB: the 5th percentile of all seconds."""
    return percentile([rss for _, rss in seen], 0.05) / MEBIBYTE


def idle(server):
    """Memory in MiB, descriptors and threads once everybody has gone."""
    server.wait_idle(15)
    seen = [server.descriptors]

    def rests():
        time.sleep(0.5)
        seen.append(server.descriptors)
        return seen[-1] == seen[-2]

    wait_for(rests, 30, lambda: f"the descriptors to rest: {seen}")
    # After this time the server has returned the free memory of its last work.
    time.sleep(GIVE_BACK_SECONDS + 2)
    return server.rss_bytes / MEBIBYTE, server.descriptors, server.threads


def test_soak(serve, figure, pytestconfig):
    seconds = pytestconfig.getoption("--soak-seconds", default=600)
    with serve() as server:

        async def mixed(length):
            until = time.monotonic() + length
            mix, seen = Mix(server, until), []
            await asyncio.gather(mix.run(), watch(server, seen, until))
            return mix, seen

        # A fifth of it first: what is loaded and kept once is there before anything is compared.
        asyncio.run(mixed(max(5, seconds // 5)))
        memory, descriptors, threads = idle(server)
        mix, seen = asyncio.run(mixed(seconds - seconds // 5))
        start, end = seen[0][0], seen[-1][0]
        early = floor([each for each in seen if each[0] <= start + (end - start) / 4])
        late = floor([each for each in seen if each[0] >= end - (end - start) / 4])
        print("MiB, second by second:", *(rss // MEBIBYTE for _, rss in seen))
        print("answers:", dict(mix.answers))
        after = idle(server)
        work = server.wait_idle(15)

        pictures = work.total("work_done_total", kind="picture")
        figure("answers", sum(mix.answers.values()), "", f">= {seconds / 2}")
        figure("pictures", pictures, "", f">= {seconds / 2}")
        figure("pictures stopped at the deadline", 100 * mix.stopped / (pictures + mix.stopped), "%", "<= 1")
        figure("unplanned answers", sum(n for status, n in mix.answers.items() if status not in PLANNED), "", "== 0")
        figure("slowest operation of any client", mix.slowest, "s", "<= 15")
        # A heavy pass takes 190 MiB while it runs; what stays is seen between two of them, and once all have gone.
        figure("memory in minutes 3 and 4", early, "MiB")
        figure("memory in the last two minutes", late, "MiB", f"<= {1.05 * early + 10:.1f}")
        figure("memory at rest after two minutes", memory, "MiB")
        figure("memory at rest at the end", after[0], "MiB", f"<= {1.05 * memory + 10:.1f}")
        figure("most memory", max(rss for _, rss in seen) / MEBIBYTE, "MiB")
        figure("descriptors gained", after[1] - descriptors, "", "<= 0")
        figure("threads gained", after[2] - threads, "", "<= 0")
        accounts = work.work()
        figure("work accepted", accounts.pop("accepted"), "", f"== {sum(accounts.values())}")
        figure("work that broke", work.total("work_failed_total", code="internal"), "", "== 0")
