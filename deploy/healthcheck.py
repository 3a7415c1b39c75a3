"""The health check of the image: status 0 if the server answers.

    python healthcheck.py [--restart]

With --restart it also ends a server that accepts three connections and answers none of them in time: Docker restarts a
container whose process has ended, but not one that is unhealthy. A server that refuses connections may still start.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

ATTEMPTS, SECONDS, PAUSE = 3, 3, 1
LISTENS = "0A"
"""The state of a socket in /proc/net/tcp."""


def is_healthy(host: str, port: int) -> bool:
    """Whether /healthz has status 200.

    Raises:
        TimeoutError: a server listens, and does not answer.
    """
    # To connect to 0.0.0.0 or to :: is to ask this machine. No proxy that the environment names comes between.
    asked = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        asked.request("GET", "/healthz")
        return asked.getresponse().status == 200
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asked.close()


def listeners(port: int) -> list[int]:
    """The processes that listen on a port, as far as this user may see them."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{words[9]}]")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(os.readlink(each) in sockets for each in (process / "fd").iterdir()):
                found.append(int(process.name))
    return found


def main() -> int:
    """The exit status."""
    host, port = os.environ["CHAINRULE_HOST"], int(os.environ["CHAINRULE_PORT"])
    for attempt in range(ATTEMPTS if "--restart" in sys.argv else 1):
        time.sleep(PAUSE if attempt else 0)
        with suppress(TimeoutError):
            return 0 if is_healthy(host, port) else 1
    if "--restart" in sys.argv:
        for process in listeners(port):
            os.kill(process, signal.SIGKILL)
    return 1


if __name__ == "__main__":
    sys.exit(main())
