"""Updates by deltas: their size beside other tools' differences, the speed of making and applying, memory, a slow line."""

import hashlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from support.servers import static

from benchmarks.measure import Row, row, run
from benchmarks.peers import installed

VERSIONS = ("0.1.0", "0.2.0")
FILES = {
    "fp32": ("plain", "model.onnx", "<= 0.44"),
    "`.ort`": ("plain", "model.ort", "<= 0.44"),
    "fp16": ("plain", "model_fp16.onnx", "<= 0.24"),
    "INT8 as the profile makes it": ("plain", "model_int8.onnx", "<= 0.25"),
    "INT8 with INT8 embeddings": ("int8", "model_int8.onnx", "<= 0.07"),
}
COMPARED = ("fp16", "INT8 with INT8 embeddings")
"""Files that other tools are given too; the larger ones take some of them many minutes."""
MEGABIT = 125_000
LINE = 100 * MEGABIT
"""Bytes a second of the slow line."""
APPLY = """
import sys
from pathlib import Path
from onnxreg.registry.delta.apply import apply
from onnxreg.schema.delta.delta_format import DeltaHeader
if len(sys.argv) > 1:
    with open(sys.argv[1], "rb") as delta, open(sys.argv[2], "rb") as old:
        for part in apply(delta, DeltaHeader.read(delta), [old]): pass
else:
    import onnxreg.schema.delta.difference
"""


def benchmark(trained: Path, cache: Path) -> list[Row]:
    """The two versions of the demo's model, as the android profile exports them."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        exports = {
            kind: [_export(trained / version, root / f"{kind}-{version}", kind, root) for version in VERSIONS]
            for kind in ("plain", "int8")
        }
        return [
            *_sizes(exports, root, cache),
            *_other_pairs(exports["plain"][0] / "model.onnx", root),
            *_speeds(exports, root),
            *_memory(root),
            *_over_a_slow_line(exports["plain"], root),
        ]


def _export(checkpoint: Path, output: Path, kind: str, root: Path) -> Path:
    options = ["--int8-embeddings"] if kind == "int8" else []
    command = [sys.executable, "-m", "onnxreg.cli", "export", checkpoint, "--profile", "android", *options]
    command += ["--name", f"demo/{kind}", "--version", checkpoint.name, "--output", output]
    run(command, os.environ | {"REG_HOME": str(root / "home"), "REG_STATE": str(root / "state")})
    return output


def model_files(directory: Path) -> dict[str, Any]:
    """The files of an export with their tensors."""
    from onnxreg.converters.delta.extents import read_extents
    from onnxreg.converters.delta.make import ModelFile
    from onnxreg.schema.core.descriptor import Descriptor
    from onnxreg.schema.core.digest import Digest

    paths = {path.name: path for path in directory.iterdir() if path.suffix in (".onnx", ".ort")}
    extents = read_extents(paths)

    def file(name: str, path: Path) -> ModelFile:
        digest = Digest(hashlib.sha256(path.read_bytes()).hexdigest())
        return ModelFile(path, Descriptor(digest, path.stat().st_size), extents[name])

    return {name: file(name, path) for name, path in paths.items()}


def _make(old: Any, new: Any, target: Path) -> int | None:
    from onnxreg.converters.delta.make import make_delta

    with target.open("wb") as sink:
        return make_delta(old, new, sink)


def _sizes(exports: dict[str, list[Path]], root: Path, cache: Path) -> Iterator[Row]:
    for label, (kind, name, aim) in FILES.items():
        old, new = (model_files(export)[name] for export in exports[kind])
        size = _make(old, new, root / "delta") or new.descriptor.size
        whole = new.descriptor.size
        yield _share(f"update, {label}", "the whole file", size, whole, aim)
        if label in COMPARED:
            for tool, peer_size in _peers(old.path, new.path, root, cache):
                yield _share(f"update, {label}", tool, size, peer_size, "")
    files = model_files(exports["plain"][1])
    source = files["model.onnx"]
    first = source.descriptor.size
    for name in ("model.ort", "model_int8.onnx", "model_fp16.onnx"):
        size = _make(source, files[name], root / "delta") or files[name].descriptor.size
        first += size
        if name != "model_fp16.onnx":
            whole = files[name].descriptor.size
            yield _share(f"{name} from the fp32 file of its version", "the whole file", size, whole, "")
    total = sum(file.descriptor.size for file in files.values())
    yield _share("first pull of a whole android version", "all files", first, total, "<= 0.65")


def _share(what: str, peer: str, ours: int, theirs: int, aim: str) -> Row:
    return row(what, peer, [(ours / 1e6, theirs / 1e6)], "MB", aim)


def _peers(old: Path, new: Path, root: Path, cache: Path) -> Iterator[tuple[str, int]]:
    """The sizes of the differences that other tools make."""
    target = root / "other"
    for level in ("-3", "-19"):
        if shutil.which("zstd"):
            command = ["zstd", "-q", "-f", level, "--long=27", f"--patch-from={old}", new, "-o", target]
            subprocess.run(command, check=True)
            yield f"zstd {level} --patch-from", target.stat().st_size
    python = installed(cache, "hdiffpatch") / "python"
    for tool, code in (
        ("HDiffPatch", "import hdiffpatch as h; d = h.diff(a, b, compression='zlib')"),
        ("bsdiff", "import bsdiff4; d = bsdiff4.diff(a, b)"),
    ):
        script = f"import sys; a, b = (open(p, 'rb').read() for p in sys.argv[1:3]); {code}; open(sys.argv[3], 'wb').write(d)"
        subprocess.run([python, "-c", script, old, new, target], check=True)
        yield tool, target.stat().st_size


def _other_pairs(model: Path, root: Path) -> Iterator[Row]:
    """Updates of other kinds, made from the same file: their weights are changed here, not trained."""
    random = np.random.default_rng(3)

    def head(name: str, array: Any) -> Any:
        return array + random.normal(0, 0.01, array.shape) if "classifier" in name else array

    def low_rank(name: str, array: Any) -> Any:
        if array.shape != (384, 384):
            return array
        return array + random.normal(0, 0.02, (384, 8)) @ random.normal(0, 0.02, (8, 384))

    def anew(name: str, array: Any) -> Any:
        return random.normal(0, float(array.std()) or 1.0, array.shape)

    kinds: dict[str, Callable[[str, Any], Any]] = {
        "head alone": head,
        "merged LoRA of rank 8": low_rank,
        "all weights drawn anew": anew,
    }
    for label, change in kinds.items():
        folder = root / label.replace(" ", "-")
        folder.mkdir()
        proto = onnx.load(model)
        for tensor in proto.graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.dtype == np.float32 and array.size > 100:
                changed = change(tensor.name, array).astype(np.float32)
                tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
        onnx.save(proto, folder / "model.onnx")
        old, new = model_files(model.parent)["model.onnx"], model_files(folder)["model.onnx"]
        size = _make(old, new, root / "delta")
        what = f"update, fp32, {label}" + ("" if size else ": no delta is offered")
        yield _share(what, "the whole file", size or new.descriptor.size, new.descriptor.size, "")


def _speeds(exports: dict[str, list[Path]], root: Path) -> Iterator[Row]:
    """Rates in bytes of the new file, beside SHA-256 over the same bytes."""
    from onnxreg.registry.delta.apply import apply
    from onnxreg.schema.delta.delta_format import DeltaHeader

    for label, kind, name in (
        ("fp32", "plain", "model.onnx"),
        ("INT8 with INT8 embeddings", "int8", "model_int8.onnx"),
    ):
        old, new = (model_files(export)[name] for export in exports[kind])
        size = new.descriptor.size / 1e6
        making, applying = [], []
        for _ in range(3):
            hashing = _seconds(lambda path=new.path: hashlib.sha256(path.read_bytes()).digest())
            made = _seconds(lambda old=old, new=new: _make(old, new, root / "delta"))

            def use(path: Path = old.path) -> None:
                with (root / "delta").open("rb") as delta, path.open("rb") as before:
                    for _ in apply(delta, DeltaHeader.read(delta), [before]):
                        pass

            making.append((size / made, size / hashing))
            applying.append((size / _seconds(use), size / hashing))
        yield row(f"making a delta, {label}", "SHA-256, one thread", making, "MB/s", ">= 60 MB/s")
        yield row(f"applying a delta, {label}", "SHA-256, one thread", applying, "MB/s", ">= 150 MB/s")


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _memory(root: Path) -> Iterator[Row]:
    """The applier's peak beside that of the same process without work."""
    start = statistics.median(run([sys.executable, "-c", APPLY]).peak for _ in range(3))
    for mebibytes in (64, 2048):
        folder = root / f"memory-{mebibytes}"
        folder.mkdir()
        old, new = _large(folder, mebibytes)
        _make(old, new, folder / "delta")
        peak = run([sys.executable, "-c", APPLY, folder / "delta", old.path]).peak
        what = f"applying a delta of {mebibytes} MiB, peak memory"
        yield row(what, "the process without work", [(peak, start)], "MiB", "<= 64 MiB more")
        shutil.rmtree(folder)


def _large(folder: Path, mebibytes: int) -> tuple[Any, Any]:
    """Two safetensors files of so many MiB in tensors of 16 MiB: of float16, a fine-tune apart."""
    import json

    from onnxreg.converters.delta.extents import read_extents
    from onnxreg.converters.delta.make import ModelFile
    from onnxreg.schema.core.descriptor import Descriptor
    from onnxreg.schema.core.digest import Digest

    count, size = mebibytes // 16, 16 * 2**20
    items = {
        f"weight{index}": {
            "dtype": "F16",
            "shape": [size // 2],
            "data_offsets": [index * size, (index + 1) * size],
        }
        for index in range(count)
    }
    header = json.dumps(items).encode()
    files = []
    for name in ("old", "new"):
        random, path = np.random.default_rng(1), folder / f"{name}.safetensors"
        with path.open("wb") as sink:
            sink.write(len(header).to_bytes(8, "little") + header)
            for _ in range(count):
                values = random.integers(0, 2**16, size // 2, dtype=np.uint16)
                steps = random.integers(0, 3, size // 2, dtype=np.uint16)
                sink.write((values + steps * (name == "new")).astype(np.uint16).tobytes())
        extents = read_extents({path.name: path})[path.name]
        files.append(ModelFile(path, Descriptor(Digest("0" * 64), path.stat().st_size), extents))
    return files[0], files[1]


def _over_a_slow_line(exports: list[Path], root: Path) -> Iterator[Row]:
    """A real `reg pull` of the update at 100 Mbit/s, by deltas and whole."""
    home = os.environ | {"REG_HOME": str(root / "home"), "REG_STATE": str(root / "state")}
    reg = [sys.executable, "-m", "onnxreg.cli"]
    run([*reg, "delta", "make", "demo/plain"], home)
    with static.serve(root / "home") as url, throttled(int(url.rpartition(":")[2]), LINE) as line:
        measured, moved = [], []
        for number in range(2):
            results = {}
            for policy in ("auto", "never"):
                client = root / f"client-{policy}-{number}"
                own = os.environ | {
                    "REG_HOME": str(client),
                    "REG_STATE": str(root / f"state-{policy}-{number}"),
                }
                run([*reg, "pull", "demo/plain:0.1.0", str(root / "home")], own)
                before = line.sent
                pull = [*reg, "pull", "demo/plain:0.2.0", line.url]
                results[policy] = run([*pull, "--deltas", "always" if policy == "auto" else policy], own).wall
                results[policy, "bytes"] = (line.sent - before) / 1e6
                shutil.rmtree(client)
            measured.append((results["auto"], results["never"]))
            moved.append((results["auto", "bytes"], results["never", "bytes"]))
    yield row(
        "update of an android version at 100 Mbit/s", "the same with whole files", measured, "s", "<= 0.5"
    )
    yield row(
        "update of an android version, bytes that the server sent",
        "the same with whole files",
        moved,
        "MB",
        "",
    )


class Line:
    """A line of so many bytes a second, over all its connections together. `sent` are the bytes to the client."""

    def __init__(self, port: int, rate: float) -> None:
        self._upstream, self._rate = port, rate
        self._lock = threading.Lock()
        self._free = time.monotonic()
        self.sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._upstream))
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _pump(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                if counts:
                    self._wait(len(data))
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _wait(self, size: int) -> None:
        with self._lock:
            self.sent += size
            self._free = max(self._free, time.monotonic()) + size / self._rate
            pause = self._free - time.monotonic()
        time.sleep(max(0.0, pause))


@contextmanager
def throttled(port: int, rate: float) -> Iterator[Line]:
    """A slow line to a server on this machine."""
    line = Line(port, rate)
    threading.Thread(target=line.serve, daemon=True).start()
    try:
        yield line
    finally:
        line.close()
