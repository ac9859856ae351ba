"""The memory of each verb for a model with 1 GiB of external data, beside that for one of 64 MiB.

Counted is anonymous memory, of a process and those that it started: pages of mapped files are the kernel's cache, and
are given back if others need memory. `reg delta make` maps both files, the other verbs none.
"""

import shutil
from pathlib import Path

import numpy as np
import onnx
from support.servers import s3servers

from benchmarks.clients import MIB, REG, scratch
from benchmarks.measure import Row, peak_anonymous, row, run

SMALL, LARGE, LARGEST = 64, 1024, 8192
"""MiB of external data. `make test-all` has the largest."""
TENSORS, WIDTH = 8, 2048
BLOCK_VALUES = 4 * MIB


def write_model(folder: Path, mebibytes: int, trained: bool = False) -> list[Path]:
    """A sum of eight embeddings in float16, all in one file of external data: random bits, of finite numbers.

    `trained` is the next version: a third of the weights is one step larger, a third two steps.
    """
    folder.mkdir()
    size = mebibytes * MIB // TENSORS
    model, weights = folder / "model.onnx", folder / "model.onnx.data"
    draw = np.random.default_rng(1)
    steps = np.random.default_rng(2).integers(0, 3, BLOCK_VALUES, dtype=np.uint16)
    with weights.open("wb") as sink:
        for _ in range(mebibytes * MIB // 2 // BLOCK_VALUES):
            block = draw.integers(0, 2**16, BLOCK_VALUES, dtype=np.uint16) & 0xBBFF
            if trained:
                block += steps
            sink.write(block.data)
    tensors = []
    for number in range(TENSORS):
        shape = [size // 2 // WIDTH, WIDTH]
        tensor = onnx.TensorProto(name=f"w{number}", data_type=onnx.TensorProto.FLOAT16, dims=shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": weights.name, "offset": number * size, "length": size}.items():
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
    nodes = [onnx.helper.make_node("Gather", [tensor.name, "ids"], [f"y{tensor.name}"]) for tensor in tensors]
    nodes.append(onnx.helper.make_node("Sum", [node.output[0] for node in nodes], ["y"]))
    ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [1])
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT16, [1, WIDTH])
    graph = onnx.helper.make_graph(nodes, "large", [ids], [output], tensors)
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), model)
    return [model, weights]


def peaks(mebibytes: int) -> dict[str, float]:
    """MiB of anonymous memory that each verb takes. Removes what later verbs do not need: the disk holds it four times."""
    with scratch() as root, s3servers.seaweedfs(root) as server:
        home, shared, other, third = (root / name for name in ("home", "shared", "other", "third"))
        bucket, found = server.fresh(), {}

        def reg(what: str, *words: str | Path, registry: Path = home) -> None:
            found[what] = peak_anonymous([REG, "--registry", registry, *words], server.environment)

        files = write_model(root / "first", mebibytes)
        reg("add", "add", *files, "--name", "acme/big")
        shutil.rmtree(root / "first")
        reg("resolve", "resolve", "acme/big")
        reg("push to a directory", "push", "acme/big", shared)
        reg("pull from a directory", "pull", "acme/big", shared, registry=other)
        shutil.rmtree(shared)
        reg("verify", "verify", registry=other)
        shutil.rmtree(other)
        reg("push to S3", "push", "acme/big", bucket)
        reg("pull from S3", "pull", "acme/big", bucket, registry=third)
        shutil.rmtree(third)
        files = write_model(root / "second", mebibytes, trained=True)
        run([REG, "--registry", home, "add", *files, "--name", "acme/big"])
        shutil.rmtree(root / "second")
        reg("delta make", "delta", "make", "acme/big")
    return found


def memory() -> list[Row]:
    """Peak memory at 1 GiB over that at 64 MiB."""
    large, small = peaks(LARGE), peaks(SMALL)
    what = f"{LARGE // 1024} GiB, anonymous memory"
    peer = "the same at 64 MiB"
    return [
        row(f"reg {verb}, {what}", peer, [(peak, small[verb])], "MiB", "flat") for verb, peak in large.items()
    ]
