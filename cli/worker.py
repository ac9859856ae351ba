"""A process that runs command lines of `reg`, one after the other, so that PyTorch is imported once.

Each line of stdin is a JSON list of words; the answer on stdout is one line of JSON: `{status, out, err, seconds}`.
"""

import io
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Any

BUG = 1
_alone = threading.Lock()
"""Exporters and streams are not made for two threads of one process, as a Dask worker may have."""


def run(words: Sequence[str], actor: str | None = None) -> dict[str, Any]:
    """Run one command line here: its exit status, what it printed on stdout and stderr, and its seconds.

    Args:
        actor: the claimed author of its events, in place of the one of this machine.
    """
    from onnxreg.cli.main import main

    began, out, err = time.monotonic(), io.StringIO(), io.StringIO()
    with _alone, redirect_stdout(out), redirect_stderr(err):
        if actor is not None:
            os.environ["REG_ACTOR"] = actor
        try:
            status = main(words)
        except Exception:  # noqa: BLE001
            status = BUG
            traceback.print_exc()
    seconds = round(time.monotonic() - began, 3)
    return {"status": status, "out": out.getvalue(), "err": err.getvalue(), "seconds": seconds}


def serve() -> None:
    """Run the lines of stdin until it ends. What native code prints goes to stderr: stdout has the answers alone."""
    with os.fdopen(os.dup(1), "w") as answers, suppress(KeyboardInterrupt):
        os.dup2(2, 1)
        for line in sys.stdin:
            print(json.dumps(run(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    serve()
