"""A family of random weights, small enough to be exported in seconds."""

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

from onnxreg.converters.families.export_family import export_family, plan_family
from onnxreg.converters.tasks.code import Consent
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.manifest.draft import Draft

SPECIES = ["apple", "bean", "corn", "weed"]
CLASSES = {"apple": ["healthy", "scab"], "bean": ["healthy", "rust", "spot"], "corn": ["healthy", "blight"]}
WIDTH, SIDE = 16, 16

DOCUMENT: dict[str, Any] = {
    "family": 1,
    "name": "acme/crops",
    "backbone": {"checkpoint": "swin"},
    "heads": {"folder": "heads", "none": ["weed"]},
    "ood": {"fit": "fit.npz", "calibrate": "calibrate.npz", "outliers": "outliers.npz"},
    "evaluation": "held-out.npz",
    "limits": {"latency_p95": None},
}


def document(**changes: Any) -> FamilyFile:
    """The family's document with some keys replaced; None leaves a key out."""
    value = {key: item for key, item in (DOCUMENT | changes).items() if item is not None}
    return FamilyFile.from_json(value)


def export(document: FamilyFile, root: Path, workspace: Path, progress: Progress = SILENT) -> Draft:
    """Export the family whose files are below `root`."""
    return export_family(plan_family(document, root), workspace, progress)[0]


def export_allowed(document: FamilyFile, root: Path, workspace: Path) -> Draft:
    """The same, with consent to the code of `write_factory`."""
    return export_family(plan_family(document, root, Consent.of(["net.py:build"])), workspace)[0]


def save_head(path: Path, classes: list[str], seed: int, *, width: int = WIDTH, **notes: Any) -> None:
    torch.manual_seed(seed)
    head = torch.nn.Linear(width, len(classes))
    recorded = {"classes": classes} | notes
    state = {name: value.detach().contiguous() for name, value in head.state_dict().items()}
    save_file(state, path, {key: json.dumps(value) for key, value in recorded.items()})


def images(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3, SIDE, SIDE)).astype(np.float32)


def of_rank(rank: int) -> np.ndarray:
    """Embeddings that vary along `rank` directions only."""
    draw = np.random.default_rng(6)
    return (draw.normal(size=(200, rank)) @ draw.normal(size=(rank, WIDTH))).astype(np.float32)


def rows(root: Path, file: str, name: str) -> Any:
    with np.load(root / file) as found:
        return found[name]


def write(root: Path) -> None:
    """Checkpoints and rows."""
    torch.manual_seed(0)
    config = transformers.SwinConfig(
        image_size=SIDE,
        patch_size=4,
        embed_dim=8,
        depths=[1, 1],
        num_heads=[1, 2],
        window_size=2,
        initializer_range=0.3,
        id2label=dict(enumerate(SPECIES)),
        label2id={name: index for index, name in enumerate(SPECIES)},
    )
    transformers.SwinForImageClassification(config).save_pretrained(root / "swin")
    (root / "heads").mkdir()
    for seed, (species, classes) in enumerate(CLASSES.items()):
        save_head(root / "heads" / f"{species}.safetensors", classes, seed)
    np.savez(root / "fit.npz", input=images(200, 1))
    np.savez(root / "calibrate.npz", input=images(100, 2))
    far = 40 * np.random.default_rng(3).normal(size=(50, WIDTH))
    np.savez(root / "outliers.npz", embedding=far.astype(np.float32))
    np.savez(root / "held-out.npz", input=images(60, 4))


NET = """
from pathlib import Path

import torch

Path(__file__).with_name("ran").touch()


class Net(torch.nn.Module):
    def __init__(self, width, classes, as_tuple):
        super().__init__()
        layers = torch.nn.Conv2d(3, width, 3, stride=2), torch.nn.Tanh(), torch.nn.AdaptiveAvgPool2d(1)
        self.body = torch.nn.Sequential(*layers, torch.nn.Flatten())
        self.fc = torch.nn.Linear(width, classes)
        self.as_tuple = as_tuple

    def forward(self, image):
        features = self.body(image)
        scores = self.fc(features)
        return (scores, features) if self.as_tuple else {"features": features, "scores": scores}


def build(width, classes=4, as_tuple=False):
    return Net(width, classes, as_tuple)
"""
"""A factory that leaves a file `ran` beside itself."""
MADE_BACKBONE: dict[str, Any] = {
    "factory": "net.py:build",
    "arguments": {"width": WIDTH},
    "checkpoint": "best.ckpt",
    "input": [3, SIDE, SIDE],
    "classes": SPECIES,
    "logits": "scores",
    "embedding": "features",
}


def write_factory(root: Path) -> torch.nn.Module:
    """Write `net.py` and a checkpoint as Lightning saves it; the module with the weights of that."""
    (root / "net.py").write_text(NET)
    build = runpy.run_path(str(root / "net.py"))["build"]
    (root / "ran").unlink()
    torch.manual_seed(1)
    made: torch.nn.Module = build(WIDTH)
    weights = {f"model.{name}": value for name, value in made.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": weights, "hyper_parameters": {"lr": 0.1}}, root / "best.ckpt")
    return made.eval()


def copy(root: Path, target: Path) -> Path:
    """The files of a family, to change."""
    shutil.copytree(root, target)
    return target
