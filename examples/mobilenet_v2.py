"""MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381), with weights named as in torchvision's checkpoints.

    reg export examples/mobilenet_v2.py:build --checkpoint mobilenet_v2-b0353104.pth \\
        --recipe examples/mobilenet_v2.yaml --name acme/mobilenet
"""

import torch
from torch import nn

STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""The stages, from table 2 of the paper, each as expansion, channels, number of blocks, and stride of the first block."""


def convolution(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    padding = (kernel - 1) // 2
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU6(),
    )


class InvertedResidual(nn.Module):
    """A block that widens its input, convolves each channel, and narrows it; it adds the input if the shapes are equal."""

    def __init__(self, before: int, after: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        widen = [convolution(before, wide, 1)] if expansion != 1 else []
        narrow = [nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after)]
        self.conv = nn.Sequential(*widen, convolution(wide, wide, 3, stride, groups=wide), *narrow)
        self.adds = stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.conv(x)
        return x + features if self.adds else features


class MobileNetV2(nn.Module):
    """The network, which turns images `[batch, 3, height, width]` into scores `[batch, classes]`."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [convolution(3, 32, 3, 2)]
        before = 32
        for expansion, after, blocks, stride in STAGES:
            for block in range(blocks):
                layers.append(InvertedResidual(before, after, 1 if block else stride, expansion))
                before = after
        self.features = nn.Sequential(*layers, convolution(before, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classifier(self.features(x).mean((2, 3)))
        return scores


def build(classes: int = 1000) -> nn.Module:
    return MobileNetV2(classes)
