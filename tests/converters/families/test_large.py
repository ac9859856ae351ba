"""A Swin-T of full size (28 million parameters, random) with 320 heads: sizes, contract, and the same bytes again."""

import hashlib
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from support.families import small

from onnxreg.converters.families.export_family import export_family
from onnxreg.converters.families.family_plan import plan_family
from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.manifest.draft import Draft

HEADS, WIDTH = 320, 768


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("swin-t")
    torch.manual_seed(0)
    ids = [f"species{number:03}" for number in range(HEADS)]
    config = transformers.SwinConfig(
        id2label=dict(enumerate(ids)), label2id={name: i for i, name in enumerate(ids)}
    )
    model = transformers.SwinForImageClassification(config)
    assert sum(parameter.numel() for parameter in model.parameters()) > 27e6
    model.save_pretrained(root / "swin")
    (root / "heads").mkdir()
    for number, name in enumerate(ids):
        classes = [f"disease{index}" for index in range(5 + number % 8)]
        small.save_head(root / "heads" / f"{name}.safetensors", classes, number, width=WIDTH)
    draw = np.random.default_rng(0)
    for file, count in (("fit", 2000), ("calibrate", 500)):
        np.savez(root / f"{file}.npz", embedding=draw.normal(size=(count, WIDTH)).astype(np.float32))
    return root


def asked(**changes: object) -> FamilyFile:
    value = {
        "family": 1,
        "name": "acme/crops",
        "backbone": {"checkpoint": "swin"},
        "heads": {"folder": "heads"},
        "ood": {"fit": "fit.npz", "calibrate": "calibrate.npz"},
        "variants": {"fused": ["float32", "int8"]},
        "limits": {"latency_p95": None},
    }
    return FamilyFile.from_json(value | changes)


def digests(draft: Draft) -> dict[str, str]:
    return {path: hashlib.sha256((draft.root / path).read_bytes()).hexdigest() for path in draft.paths()}


@pytest.mark.large
@pytest.mark.timeout(1800)
def test_a_full_size_family(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin = time.perf_counter()
    draft, latency = export_family(plan_family(asked(), source), tmp_path / "one")
    took = time.perf_counter() - begin
    sizes = {item.path: (draft.root / item.path).stat().st_size for item in draft.artifacts}
    with capsys.disabled():
        shown = {path: size for path, size in sizes.items() if not path.startswith("disease-heads/")}
        print(f"\n{len(sizes)} artifacts in {took:.0f} s", *shown.items(), *latency.to_json(), sep="\n")
    assert len(sizes) == 3 + 3 * HEADS + 2 + 1
    graph = onnx.load(draft.root / "swin-species.onnx")
    dims = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.graph.input, *graph.graph.output)
    }
    assert dims == {
        "input": ["batch_size", 3, 224, 224],
        "species_logits": ["batch_size", HEADS],
        "embedding": ["batch_size", WIDTH],
    }
    again = small.export(asked(), source, tmp_path / "two")
    assert digests(again) == digests(draft)
