"""Taking half a GiB into a store on this machine: `reg add` reads a graph, hashes and copies, and ends durable; `dvc add`
hashes too, and is followed by a sync."""

import os
import shutil
from pathlib import Path

import onnx

from benchmarks.clients import HALF, REG, make_input
from benchmarks.measure import Command, Row, Run, pairs, processor, rows, run
from benchmarks.peers import installed

GRAPH = '<ir_version: 8, opset_import: ["" : 17]> least (float[1] x) => (float[1] y) { y = Identity(x) }'


def benchmark(cache: Path, count: int = 2) -> list[Row]:
    """Each time is the first one: what the last one left is removed before."""
    with make_input(HALF) as made:
        work, home, model = made.scratch / "work", made.scratch / "home", made.scratch / "model.onnx"
        shutil.copytree(made.files, work / "files")
        onnx.save(onnx.parser.parse_model(GRAPH), model)
        dvc = installed(cache, "dvc") / "dvc"
        env = {**os.environ, "DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(work / "site")}
        add: Command = [
            REG,
            "--registry",
            home,
            "add",
            model,
            *sorted((work / "files").iterdir()),
            "--name",
            "acme/set",
        ]
        synced: Command = ["sh", "-c", 'cd "$0" && "$@" && sync -f .', work, dvc, "add", "--quiet", "files"]

        def ours() -> Run:
            shutil.rmtree(home, ignore_errors=True)
            os.sync()
            return run(add, env)

        def theirs() -> Run:
            for path in (work / ".dvc", work / "site"):
                shutil.rmtree(path, ignore_errors=True)
            run([dvc, "--cd", work, "init", "--no-scm", "--quiet"], env)
            os.sync()
            return run(synced, env)

        what, measured = f"reg add of {made.amount}, first", pairs(ours, theirs, count, warm_up=False)
        return [*rows(what, "dvc add + sync", measured, "<= 1"), processor(what, "dvc add + sync", measured)]
