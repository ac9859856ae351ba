"""Models of timm, in an environment of their own: PyPI's torchvision does not import beside the CPU build of PyTorch that ours has."""

from pathlib import Path

from support.environments import installed

ROOT = Path(__file__).parents[3]
REQUIREMENTS = ("torch==2.14.1", "torchvision==0.29.1", "--editable", f"{ROOT}[timm,run]")
SAVE = """
import sys, timm, torch
from timm.models import save_for_hf
name, directory, channels, *weights = sys.argv[1:]
torch.manual_seed(0)
model = timm.create_model(name, num_classes=1000 if weights else 3, in_chans=int(channels)).eval()
for parameter in model.parameters():
    if parameter.ndim == 1:
        torch.nn.init.normal_(parameter, std=0.5)
for file in weights:  # of torchvision: the same tensors in the same order, under other names
    tensors = torch.load(file, weights_only=True).values()
    model.load_state_dict(dict(zip(model.state_dict(), tensors, strict=True)))
config = {} if weights else {"label_names": ["cat", "dog", "owl"]}
save_for_hf(model, directory, model_config=config, safe_serialization=not weights)
"""
"""A program that saves a model: its name, the directory, the channels, and a file of torchvision's weights or none."""


def programs() -> Path:
    """The folder of the environment's programs. Raises CalledProcessError if pip cannot make it."""
    return installed(ROOT / ".cache" / "timm", *REQUIREMENTS)
