"""Taking half a GiB into a store on this machine.

`reg add` reads a graph, hashes and copies every file, and ends durable. `dvc add` hashes too; MLflow copies into a
directory and hashes nothing. Both are followed by a sync.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.clients import HALF, REG, Input, make_input
from benchmarks.measure import Command, Row, Run, pairs, processor, rows, run
from benchmarks.peers import installed

LOG = "import sys, mlflow; mlflow.start_run(); mlflow.log_artifacts(sys.argv[1])"
SYNCED = '"$@" && sync -f .'


def benchmark(cache: Path, count: int = 2) -> list[Row]:
    with make_input(HALF) as made:
        work = made.scratch / "work"
        shutil.copytree(made.files, work / "files")
        graph(made.scratch / "model.onnx")
        home = made.scratch / "home"
        files = [made.scratch / "model.onnx", *sorted((work / "files").iterdir())]
        ours = Adding("reg add", [REG, "--registry", home, "add", *files, "--name", "acme/set"], [home])
        peers = [_dvc(installed(cache, "dvc") / "dvc", work), _mlflow(cache, made, work)]
        found: list[Row] = []
        for peer in peers:
            measured = pairs(ours.first, peer.first, count, warm_up=False)
            name = f"reg add of {made.amount}, first"
            found += [*rows(name, peer.name, measured, "<= 1"), processor(name, peer.name, measured)]
        return found


class Adding:
    """One program's way to add the files, and what it leaves, which is removed before the first time."""

    def __init__(
        self,
        name: str,
        command: Command,
        leaves: Sequence[Path],
        env: dict[str, str] | None = None,
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        self.name, self._command, self._leaves = name, command, leaves
        self._env, self._prepare = {**os.environ, **(env or {})}, prepare

    def first(self) -> Run:
        for path in self._leaves:
            shutil.rmtree(path, ignore_errors=True)
        self._prepare()
        os.sync()
        return run(self._command, self._env)


def _dvc(program: Path, work: Path) -> Adding:
    """A repository without git. Its cache and what it noted of the files go before the first time."""

    def prepare() -> None:
        run([program, "--cd", work, "init", "--no-scm", "--quiet"], env)

    env = {**os.environ, "DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(work / "site")}
    command = ["sh", "-c", f'cd "$0" && {SYNCED}', work, program, "add", "--quiet", "files"]
    return Adding("dvc add + sync", command, [work / ".dvc", work / "site"], env, prepare)


def _mlflow(cache: Path, made: Input, work: Path) -> Adding:
    """Each time is a run of its own, with all files."""
    python, home = installed(cache, "mlflow") / "python", made.scratch / "mlflow"
    env = {"MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet"}
    env |= {"MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlflow.db"}
    command = ["sh", "-c", f'cd "$0" && {SYNCED}', home, python, "-c", LOG, work / "files"]
    return Adding("MLflow log_artifacts + sync", command, [home], env, home.mkdir)


def graph(path: Path) -> None:
    """The smallest there is."""
    import onnx
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    made = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "least", ends[:1], ends[1:])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)
