"""Taking half a GiB into a store on this machine: all of it, then with nothing changed, then with one small file changed.

`reg add` reads a graph, hashes and copies every file the first time, and ends durable; later it knows files again that
lay still for a minute. `dvc add` believes a file's time stamps at once; MLflow copies into a directory and hashes nothing. Both are followed by a sync.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.clients import CHANGING, HALF, REG, Input, make_input
from benchmarks.measure import Command, Row, Run, pairs, processor, rows, run
from benchmarks.peers import installed
from onnxreg.schema.core.given_file import WRITTEN_BACK_NANOSECONDS

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
        return against(ours, peers, made, work / "files" / CHANGING, count)


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
        return self.again()

    def again(self) -> Run:
        os.sync()
        return run(self._command, self._env)


def against(ours: Adding, peers: Sequence[Adding], made: Input, changing: Path, count: int) -> list[Row]:
    def changed(adding: Adding) -> Run:
        changing.unlink()
        changing.write_bytes(os.urandom(2**16))
        return adding.again()

    def compared(what: str, one: Callable[[Adding], Run]) -> Iterator[Row]:
        name = f"reg add of {made.amount}, {what}"
        for theirs in peers:
            measured = pairs(lambda: one(ours), partial(one, theirs), count, warm_up=False)
            yield from [*rows(name, theirs.name, measured, "<= 1"), processor(name, theirs.name, measured)]

    first = list(compared("first", Adding.first))
    settle(changing.parent)
    ours.again()  # only now it takes note of the files
    return [
        *first,
        *compared("nothing changed", Adding.again),
        *compared("one small file changed", changed),
    ]


def settle(files: Path) -> None:
    """Wait until the files have lain still for so long that `reg add` knows them again."""
    newest = max(path.stat().st_ctime_ns for path in files.iterdir())
    time.sleep(max(0, newest + WRITTEN_BACK_NANOSECONDS - time.time_ns()) / 10**9)


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
