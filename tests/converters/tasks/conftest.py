"""A project of a user: a module that makes nets, weights that it was trained to, images with labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CNN = """
import torch


def build(classes: int = 10) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(64, classes),
    )


class Heads(torch.nn.Module):
    def __init__(self, named: bool = False) -> None:
        super().__init__()
        self.body = torch.nn.Linear(64, 16)
        self.digit = torch.nn.Linear(16, 10)
        self.parity = torch.nn.Linear(16, 2)
        self.named = named

    def forward(self, x: torch.Tensor) -> object:
        hidden = torch.relu(self.body(x.flatten(1)))
        found = {"digit": self.digit(hidden), "parity": self.parity(hidden)}
        return found if self.named else tuple(found.values())
"""

Save = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with `net.py`, which makes nets for digits of 8 x 8 pixels."""
    (tmp_path / "net.py").write_text(CNN, "utf-8")
    return tmp_path


@pytest.fixture
def save(project: Path) -> Save:
    """Save random weights of what a factory makes; returns the file."""

    def made(function: str = "build", file: str = "best.pth", **arguments: Any) -> Path:
        import torch

        from onnxreg.converters.tasks import code

        torch.manual_seed(0)
        module = code.make(code.find(f"net.py:{function}", project), arguments)
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        path = project / file
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(module.state_dict(), path)
        return path

    return made


def images(rows: int, **labels: Any) -> dict[str, Any]:
    generator = np.random.default_rng(5)
    return {"input": generator.normal(size=(rows, 1, 8, 8)).astype(np.float32), **labels}
