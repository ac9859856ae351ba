"""The client in examples/web-client, in one Node process for many calls."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DRIVER = Path(__file__).parents[2] / "examples" / "web_client.mjs"
Call = Callable[..., Any]


@contextmanager
def running(node: str, *words: str) -> Iterator[Call]:
    """Call the client in Node; with the word `node` it has the `fetch` of `@onnxreg/client/node`."""
    with driven(node, DRIVER, *words) as call:
        yield call


@contextmanager
def driven(*command: str | Path) -> Iterator[Call]:
    """Call a client in a program that reads calls and writes answers: `call(url, directory, name, *arguments)`.

    Nothing but the directory is kept between calls.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def call(url: str, directory: Path | None, name: str, *words: Any, token: str | None = None) -> Any:
            request = {"url": url, "call": name, "words": words, "token": token}
            print(
                json.dumps({**request, "directory": directory and str(directory)}), file=requests, flush=True
            )
            line = answers.readline()
            assert line, "the client ended with an error that is none of its own: see stderr"
            return json.loads(line)

        yield call
