"""Load on an HTTP server of this machine: requests by wrk, downloads by threads; both bounded in time."""

import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.measure import Command, memory, tree

CLIENTS = 64
PIECE = 2**20

SCRIPT = """
local asked, place = {}, 0
function init()
  for line in io.lines(os.getenv("ASKED")) do
    local method, path, body = line:match("^(%S+) (%S+) ?(.*)$")
    asked[#asked + 1] = wrk.format(method, path, {["Content-Type"] = "application/json"}, body ~= "" and body or nil)
  end
end
function request()
  place = place % #asked + 1
  return asked[place]
end
function done(summary, latency)
  local failed = summary.errors
  io.write(string.format('{"count": %d, "seconds": %f, "median": %f, "p99": %f, "failed": %d}\\n', summary.requests,
    summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6,
    failed.connect + failed.read + failed.write + failed.status + failed.timeout))
end
"""


@dataclass(frozen=True)
class Ask:
    """One request. `path` is encoded as in a URL; `body` is JSON on one line, or empty."""

    method: str
    path: str
    body: str = ""


@dataclass(frozen=True)
class Load:
    """What a server did: answers a second, and seconds from request to answer: the median and the 99th percentile."""

    rate: float
    median: float
    p99: float


@dataclass(frozen=True)
class Server:
    """A server of this machine, and its first process."""

    url: str
    pid: int

    def peak(self) -> float:
        """MiB that its processes had resident at most, summed."""
        return sum(memory(pid, "VmHWM:") for pid in tree(self.pid)) / 1024


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(command: Command, port: int, healthy: str, env: dict[str, str] | None = None) -> Iterator[Server]:
    """A server while the block runs, from when it answers at the path `healthy` on. What it says goes nowhere."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(6000):
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} exited {process.returncode}")
            with suppress(URLError), urlopen(url + healthy, timeout=60):
                break
            time.sleep(0.01)
        else:
            raise SystemExit(f"{command[0]} does not answer at {url}{healthy}")
        yield Server(url, process.pid)
    finally:
        process.terminate()
        process.wait(60)


def ask(server: Server, asked: Sequence[Ask], seconds: int, clients: int) -> Load:
    """So many clients ask in turn, each once it has its answer before. SystemExit if a request fails, or none is answered."""
    wrk = shutil.which("wrk")
    if wrk is None:
        raise SystemExit("wrk is missing: apt-get install wrk")
    with tempfile.TemporaryDirectory() as directory:
        script, lines = Path(directory) / "ask.lua", Path(directory) / "asked"
        script.write_text(SCRIPT)
        lines.write_text("".join(f"{item.method} {item.path} {item.body}\n" for item in asked))
        options = [f"-c{clients}", "-t1", f"-d{seconds}", "--timeout", "60", "-s", script]
        command = [wrk, *options, server.url]
        pipes: Any = {"capture_output": True, "text": True, "timeout": seconds + 90}
        done = subprocess.run(command, check=True, env={"ASKED": str(lines)}, **pipes)
    found = json.loads(done.stdout.splitlines()[-1])
    if found["failed"]:
        raise SystemExit(f"{found['failed']} of {found['count']} requests to {server.url} failed")
    if not found["count"]:
        raise SystemExit(f"{server.url} answered nothing in {seconds} seconds: the machine is too busy")
    return Load(found["count"] / found["seconds"], found["median"], found["p99"])


def download(server: Server, path: str, size: int, clients: int) -> float:
    """Bytes a second that so many clients get together, each fetching a file of `size` bytes once."""
    threads = [threading.Thread(target=_fetch, args=(server, path, size)) for _ in range(clients)]
    started = time.perf_counter()
    for step in (threading.Thread.start, threading.Thread.join):
        list(map(step, threads))
    return clients * size / (time.perf_counter() - started)


def _fetch(server: Server, path: str, size: int) -> None:
    """Take a body as fast as it comes, and forget it; anything else than the whole is an error."""
    host, port = server.url.removeprefix("http://").split(":")
    room = memoryview(bytearray(PIECE))
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head = connection.recv(PIECE)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"{server.url}{path} answered {head[:60]!r}")
        taken = len(head.partition(b"\r\n\r\n")[2])
        while count := connection.recv_into(room):
            taken += count
    if taken != size:
        raise SystemExit(f"{server.url}{path} sent {taken} of {size} bytes")
