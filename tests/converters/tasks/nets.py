"""Small vision modules as source text, as users have them, with the weights of one in every form."""

from pathlib import Path

CNN = """
import torch


def build(classes: int = 10, channels: int = 1) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(channels, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(64, classes),
    )


class Heads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(64, 16)
        self.digit = torch.nn.Linear(16, 10)
        self.parity = torch.nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.relu(self.body(x.flatten(1)))
        return self.digit(hidden), self.parity(hidden)


class Named(Heads):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        digit, parity = super().forward(x)
        return {"digit": digit, "parity": parity}


def raises() -> torch.nn.Module:
    raise RuntimeError("no such architecture: resnet-9000")


def leaves() -> torch.nn.Module:
    raise SystemExit(3)


def number() -> int:
    return 5


constant = 5
"""


def write(directory: Path) -> Path:
    """`net.py` in a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "net.py").write_text(CNN, "utf-8")
    return directory
