"""Tiny random models of families of vision that code makes, each exported in every precision."""

import runpy
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile

SIDE = 32
_VIT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_SWIN = {"patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
_STAGES = {"hidden_sizes": [16, 32], "depths": [1, 1]}
KINDS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "ViT": ("vit", {**_VIT, "image_size": SIDE, "patch_size": 8}),
    "Swin": ("swin", {**_SWIN, "image_size": SIDE}),
    "ResNet": ("resnet", {**_STAGES, "embedding_size": 16, "layer_type": "basic"}),
    "EfficientNet": ("efficientnet", {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320, "image_size": SIDE}),
    "MobileNetV2": ("mobilenet_v2", {"depth_multiplier": 0.35, "image_size": SIDE}),
    "ConvNeXt": ("convnext", {**_STAGES, "num_stages": 2, "patch_size": 4, "image_size": SIDE}),
}  # fmt: skip
"""By the names of people, what transformers calls each, and its configuration."""
STEPS: Mapping[str, dict[str, Any]] = {
    "float16": {"pass": "OnnxFloatToFloat16"},
    "int8, dynamic": {"pass": "OnnxDynamicQuantization"},
    "int8, static": {"pass": "OnnxStaticQuantization", "data": "images.npz"},
}
FACTORY = """
import torch, transformers

def build():
    config = transformers.AutoConfig.for_model({kind!r}, num_labels=5, **{config!r})
    return transformers.AutoModelForImageClassification.from_config(config, attn_implementation="eager")
"""


def row(name: str, workspaces: Path | None = None) -> list[str]:
    """float32, then what was made of it: `yes`, or `refused` if an error says why.

    `workspaces` gets a directory with the graphs of each precision.
    """
    import torch
    from safetensors.torch import save_file

    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        kind, config = KINDS[name]
        (directory / "net.py").write_text(FACTORY.format(kind=kind, config=config))
        made = runpy.run_path(str(directory / "net.py"))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            tensors = {key: tensor.contiguous() for key, tensor in made["build"]().state_dict().items()}
        save_file(tensors, directory / "net.safetensors")
        images = np.random.default_rng(0).normal(size=(8, 3, SIDE, SIDE)).astype(np.float32)
        np.savez(directory / "images.npz", input=images)
        return [
            _cell(directory, STEPS.get(precision), (workspaces or directory) / precision)
            for precision in ("float32", *STEPS)
        ]


def _cell(directory: Path, step: dict[str, Any] | None, workspace: Path) -> str:
    steps = [{"name": "fp32", "pass": "OnnxConversion", "params": {"target_opset": 17}}]
    steps += [] if step is None else [{"name": "made", "input": "fp32", **step}]
    options = {"input": [3, SIDE, SIDE], "checkpoint": "net.safetensors", "outputs": ["logits"], "samples": 4}
    value = {
        "task": "image-classification",
        "options": options,
        "steps": steps,
        "outputs": [{"step": each["name"]} for each in steps],
        "checks": [{"output": "fp32.onnx", "metric": "max_abs_diff", "share": 0.001}],
    }
    workspace.mkdir()
    source = f"{directory / 'net.py'}:build"
    try:
        recipe = RecipeFile.from_json(value)
        execute(plan_export(recipe, source, "tiny", directory, allow_code=["net.py"]), workspace)
    except (InputError, ConversionError):
        return "refused"
    return "yes"
