"""Tiny image classifiers as transformers saves them, with their image processors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

LABELS = ("cat", "dog", "fish", "owl", "ant")
SIDE = 32
SQUARE = {"size": {"height": SIDE, "width": SIDE}}
CROPPED = {"size": {"shortest_edge": 40}, "crop_size": SQUARE["size"]}
VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "patch_size": 8,
}


def save(
    directory: Path, processor: str = "ViT", settings: Mapping[str, Any] = SQUARE, side: int = SIDE
) -> Path:
    """Save a ViT with weights that tell classes apart, and an image processor of transformers."""
    import torch
    import transformers

    names = {"id2label": dict(enumerate(LABELS)), "label2id": {name: n for n, name in enumerate(LABELS)}}
    config = transformers.ViTConfig(**VIT, **names, image_size=side)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.ViTForImageClassification(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(directory)
    getattr(transformers, f"{processor}ImageProcessorPil")(**settings).save_pretrained(directory)
    return directory


def photograph(path: Path, mode: str = "RGB", size: tuple[int, int] = (70, 50)) -> Path:
    """Save a drawn image."""
    import numpy as np
    from PIL import Image

    values = np.random.default_rng(3).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    Image.fromarray(values).convert(mode).save(path)
    return path
