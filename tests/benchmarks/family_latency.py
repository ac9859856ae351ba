"""One image through a whole family with a full-size Swin-T (28 million parameters, random): the table in docs/families.md.

    python tests/benchmarks/family_latency.py

Backbone, one head and the detector run one after the other, batch 1, in each precision of the backbone and with one thread to as many
as there are cores; all in turn, three rounds, so that a drift of the machine hits all alike.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.families import small
from transformers import SwinConfig, SwinForImageClassification

from onnxreg.converters.families.export_family import make_family
from onnxreg.converters.families.family_plan import plan_family
from onnxreg.converters.runtime.sessions import session_options
from onnxreg.converters.source.toolchain import cpu_model
from onnxreg.schema.inputs.family_file import FamilyFile

WIDTH, ROUNDS, WARM_UP, RUNS = 768, 3, 3, 20
CLASSES = ["apple", "bean", "corn"]
DOCUMENT = {
    "family": 1,
    "name": "acme/crops",
    "backbone": {"checkpoint": "swin"},
    "heads": {"folder": "heads"},
    "ood": {"fit": "fit.npz", "calibrate": "calibrate.npz"},
}


def write(root: Path) -> None:
    """Checkpoints and rows."""
    torch.manual_seed(0)
    names = dict(enumerate(CLASSES))
    config = SwinConfig(id2label=names, label2id={name: index for index, name in names.items()})
    SwinForImageClassification(config).save_pretrained(root / "swin")
    (root / "heads").mkdir()
    for seed, name in enumerate(CLASSES):
        small.save_head(root / "heads" / f"{name}.safetensors", ["healthy", "sick"], seed, width=WIDTH)
    draw = np.random.default_rng(0)
    for file, count in (("fit", 2000), ("calibrate", 500)):
        np.savez(root / f"{file}.npz", embedding=draw.normal(size=(count, WIDTH)).astype(np.float32))


def load(path: Path, threads: int) -> Any:
    import onnxruntime as ort

    options = session_options(prepacking=True)
    options.intra_op_num_threads = threads
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def answer(backbone: Any, others: list[Any], image: Any) -> float:
    """The milliseconds of one image."""
    begin = time.perf_counter()
    (embedding,) = backbone.run(["embedding"], {"input": image})
    for session in others:
        session.run(None, {"embedding": embedding})
    return 1000 * (time.perf_counter() - begin)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        write(root)
        _, files = make_family(plan_family(FamilyFile.from_json(DOCUMENT), root), root / "work")
        cores = len(os.sched_getaffinity(0))
        image = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)
        trunks = {
            (file.precision, threads): load(root / "work" / file.path, threads)
            for file in files
            if file.role == "backbone"
            for threads in sorted({1, 2, cores})
        }
        others = [load(root / "work" / path, 1) for path in ("heads/apple-int8.onnx", "ood.onnx")]
        times: dict[tuple[str, int], list[float]] = {key: [] for key in trunks}
        for _ in range(ROUNDS):
            for key, trunk in trunks.items():
                times[key] += [answer(trunk, others, image) for _ in range(WARM_UP + RUNS)][WARM_UP:]
    print(
        f"{cpu_model()}, {cores} cores\n\n| backbone | threads | p50 ms | p95 ms | least ms |\n|---|---|---|---|---|"
    )
    for (precision, threads), found in times.items():
        p50, p95 = np.percentile(found, [50, 95])
        print(f"| {precision} | {threads} | {p50:.0f} | {p95:.0f} | {min(found):.0f} |")


if __name__ == "__main__":
    main()
