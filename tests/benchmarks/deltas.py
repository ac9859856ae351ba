"""Updates by deltas of the demo's model: their size beside the whole file, the speed of making and applying."""

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.exports import KINDS, VERSIONS, exported
from benchmarks.measure import Row, row

FILES = {
    "fp32": ("plain", "model.onnx", "<= 0.44"),
    "`.ort`": ("plain", "model.ort", "<= 0.44"),
    "fp16": ("plain", "model_fp16.onnx", "<= 0.24"),
    "INT8 as the profile makes it": ("plain", "model_int8.onnx", "<= 0.25"),
    "INT8 with INT8 embeddings": ("int8", "model_int8.onnx", "<= 0.07"),
}


def sizes(checkpoints: Path) -> list[Row]:
    """Two versions, as the android profile exports them."""
    with tempfile.TemporaryDirectory() as directory:
        return list(_sizes(_exports(checkpoints), Path(directory) / "delta"))


def speed(checkpoints: Path) -> list[Row]:
    """Rates in bytes of the new file, beside SHA-256 over the same bytes."""
    with tempfile.TemporaryDirectory() as directory:
        return list(_speeds(_exports(checkpoints)["plain"], Path(directory) / "delta"))


def _exports(checkpoints: Path) -> dict[str, list[Path]]:
    """The directories of both versions, for each kind of export."""
    return {kind: [exported(checkpoints, kind) / version for version in VERSIONS] for kind in KINDS}


def model_files(directory: Path) -> dict[str, Any]:
    """The files of an export with their tensors."""
    from onnxreg.converters.delta.make import ModelFile, read_extents
    from onnxreg.schema.core.canonical import Descriptor, Digest

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


def _sizes(exports: dict[str, list[Path]], target: Path) -> Iterator[Row]:
    for label, (kind, name, aim) in FILES.items():
        old, new = (model_files(export)[name] for export in exports[kind])
        whole = new.descriptor.size
        size = _make(old, new, target) or whole
        yield row(f"update, {label}", "the whole file", [(size / 1e6, whole / 1e6)], "MB", aim)


def _speeds(exports: list[Path], target: Path) -> Iterator[Row]:
    from onnxreg.registry.transfer.exchange import apply_delta
    from onnxreg.schema.delta.delta_format import DeltaHeader

    def use(path: Path) -> None:
        with target.open("rb") as delta, path.open("rb") as before:
            for _ in apply_delta(delta, DeltaHeader.read_from(delta), [before]):
                pass

    for label in ("fp32", "INT8 as the profile makes it"):
        old, new = (model_files(export)[FILES[label][1]] for export in exports)
        size, making, applying = new.descriptor.size / 1e6, [], []
        for _ in range(3):
            hashing = _seconds(lambda path=new.path: hashlib.sha256(path.read_bytes()).digest())
            making.append((size / _seconds(lambda old=old, new=new: _make(old, new, target)), size / hashing))
            applying.append((size / _seconds(lambda path=old.path: use(path)), size / hashing))
        yield row(f"making a delta, {label}", "SHA-256, one thread", making, "MB/s", ">= 60 MB/s")
        yield row(f"applying a delta, {label}", "SHA-256, one thread", applying, "MB/s", ">= 150 MB/s")


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
