"""A headless Chromium (`apt-get install chromium`), driven by playwright-core, and the pages that it shows."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium"
)
Evaluate = Callable[..., Any]


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Static files, as any web server has them."""

    class Quiet(SimpleHTTPRequestHandler):
        extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@contextmanager
def browsing(modules: Path, profile: Path, quota: int | None = None) -> Iterator[Evaluate]:
    """`evaluate(page, code, *arguments)` loads a page and returns what a function of JavaScript answers there.

    Nothing is kept between calls but what the page keeps in the profile, at most `quota` bytes.
    """
    command = ["node", Path(__file__).with_name("browser.mjs"), modules, str(CHROMIUM), profile]
    command += [] if quota is None else [str(quota)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def evaluate(page: str, code: str, *arguments: Any) -> Any:
            print(json.dumps([page, code, arguments]), file=requests, flush=True)
            return json.loads(answers.readline())

        yield evaluate
        requests.close()
