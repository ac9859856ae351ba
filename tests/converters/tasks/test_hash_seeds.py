"""An export gives the same bytes in every process, whatever its `PYTHONHASHSEED`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.tasks import architectures
from support.tasks import vision_architectures as vision

from onnxreg.converters.passes.conversion import sorted_sets

CHILD = Path(__file__).parents[2] / "support" / "tasks" / "export_digests.py"
QUICK = tuple(f"{name}:feature-extraction" for name in ("ModernBERT", "BERT", "DeBERTa-v3"))
ALL = (*(each.name for each in architectures.TEXT), *vision.KINDS)


def export(names: tuple[str, ...], seed: str, checkpoints: Path) -> dict[str, Any]:
    """The digests that a process with this seed wrote, by architecture; all processes export the same checkpoints."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": seed,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(CHILD.parents[2]),
    }
    run = subprocess.run(
        [sys.executable, str(CHILD), str(checkpoints), *names],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    digests: dict[str, Any] = json.loads(run.stdout)
    return digests


@pytest.mark.more
@pytest.mark.parametrize(
    ("names", "seeds"),
    [
        pytest.param(QUICK, ("0", "1"), id="quick"),
        *(pytest.param((name,), ("0", "1", "2", "0"), id=name, marks=pytest.mark.large) for name in ALL),
    ],
)
def test_bytes_do_not_depend_on_the_hash_seed(
    names: tuple[str, ...], seeds: tuple[str, ...], tmp_path: Path
) -> None:
    first, *others = (export(names, seed, tmp_path) for seed in seeds)
    assert all(first[name] for name in names if name != "T5")
    assert all(other == first for other in others)


class Loop(torch.nn.Module):
    """Gives the order in which its forward meets the texts of a set."""

    def forward(self) -> list[str]:
        return list(set("hfgbadce"))


def test_sets_of_texts_are_sorted_only_inside() -> None:
    with sorted_sets(torch.nn.Sequential(Loop())):
        assert Loop()() == list("abcdefgh")
    assert "set" not in globals()
