"""The net of `test_vision.py`, as a user has it: a function in a file."""

from typing import Any

import torch
from torch import nn


class Swin(nn.Module):
    """A tiny Swin transformer with two heads: which digit, and whether it is odd."""

    def __init__(self) -> None:
        from transformers import SwinConfig, SwinModel

        super().__init__()
        sizes = {"image_size": 8, "patch_size": 2, "num_channels": 1, "embed_dim": 24, "window_size": 2}
        config = SwinConfig(depths=[2, 2], num_heads=[2, 4], drop_path_rate=0.0, **sizes)
        self.swin = SwinModel(config)
        self.digit = nn.Linear(config.hidden_size, 10)
        self.parity = nn.Linear(config.hidden_size, 2)

    def forward(self, pixels: torch.Tensor) -> dict[str, Any]:
        pooled = self.swin(pixels).pooler_output
        return {"digit": self.digit(pooled), "parity": self.parity(pooled)}


def swin() -> nn.Module:
    return Swin()
