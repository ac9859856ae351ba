"""`reg serve` as a process: how it starts, what it says, and how it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from support.sampling import sampled

from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import blob_path

Process = subprocess.Popen[str]
SIZE = 64 * 2**20


@contextmanager
def serving(home: Path, *words: str, **environment: str) -> Iterator[tuple[Process, str]]:
    """The process, and the URL that it says."""
    command = [sys.executable, "-m", "onnxreg.cli", "--registry", str(home), "serve", "--port", "0", *words]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        command, **pipes, env={**os.environ, **environment, "PYTHONUNBUFFERED": ""}
    ) as process:
        assert process.stdout is not None
        said = re.fullmatch(r"serving .* at (http://\S+)\n", process.stdout.readline())
        assert said is not None, process.communicate()[1]
        try:
            yield process, said[1]
        finally:
            process.kill()


def get(url: str, **headers: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        data: bytes = answer.read()
        return data


def end(process: Process, by: signal.Signals = signal.SIGTERM) -> tuple[int, list[Any]]:
    """The exit status, and the lines of the log."""
    process.send_signal(by)
    _, said = process.communicate(timeout=120)
    return process.returncode, [json.loads(line) for line in said.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("by", sampled([signal.SIGTERM, signal.SIGINT], 2))
def test_it_serves_until_it_is_told_to_stop(home, by):
    with serving(home) as (process, url):
        assert json.loads(get(f"{url}/v1/models"))["models"]
        status, lines = end(process, by)
    assert (status, [line["path"] for line in lines]) == (0, ["/v1/models"])
    if by == signal.SIGINT:
        with serving(home, "--no-access-log") as (process, url):
            get(f"{url}/healthz")
            process.send_signal(by)
            assert process.communicate(timeout=120)[1] == ""


@pytest.fixture
def large(home: Path) -> str:
    """The path of a blob that no socket buffers whole."""
    with DirectoryRegistry.open(home).push() as push:
        digest, _ = push.put(BytesIO(bytes(SIZE)))
        push.flush()
    return f"/{blob_path(digest)}"


def begin(url: str, path: str) -> socket.socket:
    """A download of which nothing but the beginning was taken."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.settimeout(120)
    connection.connect((host, int(port)))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert connection.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
    return connection


def rest(connection: socket.socket) -> int:
    """Bytes that still come."""
    count = 0
    try:
        while data := connection.recv(1 << 20):
            count += len(data)
    except ConnectionError:
        pass
    return count


@pytest.mark.more
def test_memory_is_flat(home, large):
    """Several downloads at once, of files larger than what the server may grow by."""
    with serving(home) as (process, url):
        get(f"{url}/registry.json")
        before = peak(process)
        downloads = [begin(url, large) for _ in range(4)]
        assert [rest(connection) > SIZE for connection in downloads] == [True] * 4
        for connection in downloads:
            connection.close()
        assert get(f"{url}{large}", Range=f"bytes=1-{SIZE}") == bytes(SIZE - 1)
        assert peak(process) - before < SIZE // 2


def peak(process: Process) -> int:
    """The most memory that the process ever had resident, in bytes."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


def refuses(url: str) -> bool:
    host, port = url.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port)), timeout=60).close()
    except ConnectionError:
        return True
    return False


@pytest.mark.more
@pytest.mark.parametrize("drain", [(), ("--drain", "1")])
def test_a_download_that_runs_may_end_but_not_for_ever(home, large, drain):
    with serving(home, *drain) as (process, url), begin(url, large) as connection:
        process.send_signal(signal.SIGTERM)
        if drain:
            status, lines = end(process)
            assert rest(connection) < SIZE and [line for line in lines if line.get("bytes", SIZE) < SIZE]
        else:
            while not refuses(url):
                pass
            assert rest(connection) > SIZE
            status, lines = end(process)
            assert [(line["status"], line["bytes"]) for line in lines] == [(200, SIZE)]
        assert status == 0 and not [line for line in lines if "trace" in line]


@pytest.mark.parametrize("words", sampled([("--token-file", "token"), ()], 2))
def test_the_token_comes_from_a_file_or_the_environment(home, words):
    Path("token").write_text("from-file\n")
    token = "from-file" if words else "from-environment"
    with serving(home, *words, REG_SERVE_TOKEN="from-environment") as (process, url):
        assert get(f"{url}/registry.json", Authorization=f"Bearer {token}")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"{url}/registry.json")
        process.send_signal(signal.SIGTERM)
        assert token not in "".join(process.communicate(timeout=120))


@pytest.mark.more
@pytest.mark.parametrize(
    ("words", "token", "warned"),
    [
        ("--host 0.0.0.0 --behind-proxy", "", True),
        ("--host 0.0.0.0 --behind-proxy", "t", False),
        ("", "", False),
    ],
)
def test_an_open_server_without_a_token_warns(home, words, token, warned):
    with serving(home, *words.split(), **({"REG_SERVE_TOKEN": token} if token else {})) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert ("warning: everybody" in process.communicate(timeout=120)[1]) is warned


@pytest.mark.parametrize("site", sampled(["app.example", "https://app.example/page", "https://", ""], 4))
def test_a_site_that_no_browser_sends_is_refused(reg, home, site):
    assert reg("--registry", home, "serve", "--cors", site).ended(2)


def test_a_site_is_known_however_it_is_written(home):
    with serving(home, "--cors", "https://App.example/") as (_, url):
        request = urllib.request.Request(f"{url}/registry.json", headers={"Origin": "https://app.example"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
            assert "Retry-After" in answer.headers["Access-Control-Expose-Headers"]


def test_a_port_that_is_taken(reg, home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = reg("--registry", home, "serve", "--port", taken.getsockname()[1])
    assert done.ended(9, "try another --port")


def children(process: Process) -> list[int]:
    """The workers."""
    pids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def eventually(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answered(url: str) -> float:
    """The number of answers of all workers, as /metrics counts them."""
    lines = (line for line in get(f"{url}/metrics").decode().splitlines() if 'route="/healthz"' in line)
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("reg_requests_total{"))


@pytest.mark.more
def test_workers_share_a_socket_and_their_counters(home):
    with serving(home, "--workers", "2") as (process, url):
        eventually(lambda: len(children(process)) == 2)
        for _ in range(20):
            get(f"{url}/healthz")
        eventually(lambda: answered(url) == 20)
        for pid in children(process):
            os.kill(pid, signal.SIGSTOP)
        assert not any(refuses(url) for _ in range(20)), "the queue takes them while nobody accepts"
        for pid in children(process):
            os.kill(pid, signal.SIGCONT)
        status, lines = end(process)
    assert (status, sum(line["path"] == "/healthz" for line in lines)) == (0, 20)


@pytest.mark.more
def test_a_worker_that_dies_is_replaced_and_its_counters_stay(home):
    with serving(home, "--workers", "2") as (process, url):
        eventually(lambda: len(children(process)) == 2)
        before = children(process)
        for _ in range(10):
            get(f"{url}/healthz")
        eventually(lambda: answered(url) == 10)
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda: len(children(process)) == 2 and before[0] not in children(process))
        eventually(lambda: answered(url) == 10)
        assert end(process, signal.SIGINT)[0] == 0


def test_workers_end_with_the_process_that_started_them(home):
    with serving(home, "--workers", "2") as (process, _):
        eventually(lambda: len(children(process)) == 2)
        workers = children(process)
        process.kill()
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
