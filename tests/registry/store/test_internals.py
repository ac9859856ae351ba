"""The private attributes of libraries that the registry uses are in the installed versions, and have their effect."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO

import httpx2
import pytest
from huggingface_hub import CommitOperationAdd

from onnxreg.registry.store.hub.download import guard
from onnxreg.registry.store.net import internals, requests


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as httpd:
        threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that meters counted."""
    sizes: list[int] = []
    monkeypatch.setattr(requests.Meter, "count", lambda meter, size, began: sizes.append(size))
    return sizes


def test_answers_to_httpx_are_metered(server: str, counts: list[int]) -> None:
    with httpx2.Client() as client:
        guard(client)
        assert client.get(server).status_code == 404
    assert sum(counts) > 0


def test_httpx_sends_files_in_blocks_of_the_given_size() -> None:
    internals.enlarge_upload_blocks(2**20)
    stream = httpx2.Request("PUT", "https://hub.lab", content=BytesIO(bytes(2**21))).stream
    assert isinstance(stream, httpx2.SyncByteStream)
    assert [len(block) for block in stream] == [2**20, 2**20]


def test_a_new_file_of_a_commit_is_not_left_out() -> None:
    assert not internals.is_left_out(CommitOperationAdd("model.onnx", b""))
