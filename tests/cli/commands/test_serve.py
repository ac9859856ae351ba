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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.layout import blob_path

Reg = Callable[..., Any]
Process = subprocess.Popen[str]
SIZE = 64 * 2**20


@contextmanager
def serving(home: Path, *words: str, **environment: str) -> Iterator[tuple[Process, str]]:
    """The process, and the URL that it says."""
    command = [sys.executable, "-m", "onnxreg.cli", "--registry", str(home), "serve", "--port", "0", *words]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment, "PYTHONUNBUFFERED": ""},
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


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(home: Path, by: signal.Signals) -> None:
    with serving(home) as (process, url):
        assert json.loads(get(f"{url}/v1/models"))["models"]
        status, lines = end(process, by)
    assert status == 0
    assert [line["path"] for line in lines] == ["/v1/models"]


def test_no_log_where_none_is_wanted(home: Path) -> None:
    with serving(home, "--no-access-log") as (process, url):
        get(f"{url}/healthz")
        process.send_signal(signal.SIGTERM)
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
def test_memory_is_flat(home: Path, large: str) -> None:
    """Several downloads at once, of files larger than what the server may grow by."""
    with serving(home) as (process, url):
        get(f"{url}/registry.json")
        before = peak(process)
        downloads = [begin(url, large) for _ in range(4)]
        assert [rest(connection) > SIZE for connection in downloads] == [True] * 4
        for connection in downloads:
            connection.close()
        assert get(f"{url}{large}", Range=f"bytes=1-{SIZE}") == bytes(SIZE - 1)
        assert peak(process) - before < SIZE // 4


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
def test_a_download_that_runs_may_end(home: Path, large: str) -> None:
    with serving(home) as (process, url), begin(url, large) as connection:
        process.send_signal(signal.SIGTERM)
        while not refuses(url):
            pass
        assert rest(connection) > SIZE
        assert process.wait(timeout=120) == 0
        assert process.stderr is not None
        (line,) = [json.loads(line) for line in process.stderr.read().splitlines()]
        assert (line["status"], line["bytes"]) == (200, SIZE)


@pytest.mark.more
def test_but_not_for_ever(home: Path, large: str) -> None:
    with serving(home, "--drain", "1") as (process, url), begin(url, large) as connection:
        status, lines = end(process)
        assert status == 0
        assert rest(connection) < SIZE
        assert [line for line in lines if line.get("bytes", SIZE) < SIZE]
        assert not [line for line in lines if "trace" in line]


def test_the_token_comes_from_a_file_or_the_environment(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    for words, environment, token in (
        (["--token-file", str(file)], {}, "from-file"),
        ([], {"REG_SERVE_TOKEN": "from-environment"}, "from-environment"),
        (["--token-file", str(file)], {"REG_SERVE_TOKEN": "from-environment"}, "from-file"),
    ):
        with serving(home, *words, **environment) as (process, url):
            assert get(f"{url}/registry.json", Authorization=f"Bearer {token}")
            with pytest.raises(urllib.error.HTTPError, match="401"):
                get(f"{url}/registry.json")
            process.send_signal(signal.SIGTERM)
            assert token not in "".join(process.communicate(timeout=120))


@pytest.mark.more
def test_an_open_server_without_a_token_warns(home: Path) -> None:
    for words, environment, warned in (
        (["--host", "0.0.0.0", "--behind-proxy"], {}, True),
        (["--host", "0.0.0.0", "--behind-proxy"], {"REG_SERVE_TOKEN": "t0ken"}, False),
        (["--host", "localhost"], {}, False),
    ):
        with serving(home, *words, **environment) as (process, _):
            process.send_signal(signal.SIGTERM)
            assert ("warning: everybody" in process.communicate(timeout=120)[1]) is warned


BAD: Sequence[tuple[list[str], int, str]] = [
    (["--port", "70000"], 2, "--port"),
    (["--port", "x"], 2, "--port"),
    (["--host", "not a host"], 2, "is not an address of this machine"),
    (["--host", "0.0.0.0"], 2, "other machines reach 0.0.0.0"),
    (["--host", "192.0.2.1", "--behind-proxy"], 9, "cannot listen at 192.0.2.1"),
    (["--token-file", "nothing"], 3, "there is no file nothing"),
    (["--token-file", "empty"], 2, "holds no token"),
    (["--token-file", "two"], 2, "holds no token"),
    (["--url", "models.example"], 2, "not a URL"),
    (["--drain", "-1"], 2, "--drain"),
]


@pytest.mark.parametrize(("words", "status", "message"), BAD, ids=lambda value: str(value)[:30])
def test_bad_input(reg: Reg, home: Path, words: list[str], status: int, message: str) -> None:
    Path("empty").write_text("\n")
    Path("two").write_text("two words\n")
    done = reg("--registry", home, "serve", *words)
    assert (done.status, done.out) == (status, "")
    assert message in done.err


def test_there_must_be_a_registry(reg: Reg, tmp_path: Path) -> None:
    assert reg("--registry", tmp_path / "nothing", "serve").status == 3


def test_a_port_that_is_taken(reg: Reg, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = reg("--registry", home, "serve", "--port", taken.getsockname()[1])
    assert done.status == 9
    assert "choose another --port" in done.err


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
    lines = get(f"{url}/metrics").decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("reg_requests_total{") and 'route="/healthz"' in line
    )


def test_workers_share_a_socket_and_their_counters(home: Path) -> None:
    with serving(home, "--workers", "2") as (process, url):
        eventually(lambda: len(children(process)) == 2)
        for _ in range(20):
            get(f"{url}/healthz")
        eventually(lambda: answered(url) == 20)
        status, lines = end(process)
    assert status == 0
    assert sum(line["path"] == "/healthz" for line in lines) == 20


@pytest.mark.more
def test_a_worker_that_dies_is_replaced_and_its_counters_stay(home: Path) -> None:
    with serving(home, "--workers", "2") as (process, url):
        eventually(lambda: len(children(process)) == 2)
        before = children(process)
        for _ in range(10):
            get(f"{url}/healthz")
        eventually(lambda: answered(url) == 10)
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda: len(children(process)) == 2 and before[0] not in children(process))
        eventually(lambda: answered(url) == 10)
        status, _ = end(process, signal.SIGINT)
    assert status == 0


def test_workers_end_with_the_process_that_started_them(home: Path) -> None:
    with serving(home, "--workers", "2") as (process, _):
        eventually(lambda: len(children(process)) == 2)
        workers = children(process)
        process.kill()
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
