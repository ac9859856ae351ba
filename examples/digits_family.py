"""Train a small model family on real images: digits, classified in two steps.

    python examples/digits_family.py WORK
    reg export --recipe WORK/family.yaml

A Swin learns to which group a handwritten digit belongs (round, straight or curved); a linear head for each group says
which digit it is. Images that training does not use calibrate and test the family, and patches of photographs are its
outliers. This needs scikit-learn, which contains the images.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits, load_sample_images
from transformers import SwinConfig, SwinForImageClassification

GROUPS = {"round": (0, 6, 8, 9), "straight": (1, 4, 7), "curved": (2, 3, 5)}
NOBODY = "unnamed"
"""A class that deliberately has no head."""
SIZE, SCALE = 16, 2
TRAINED, CALIBRATED = 1000, 350
EPOCHS, BATCH, SEED = 20, 25, 0

RECIPE = """\
family: 1
name: examples/digits
license: Apache-2.0
backbone: {{checkpoint: swin}}
heads: {{folder: heads, none: [{nobody}]}}
ood: {{fit: fit.npz, calibrate: calibrate.npz, outliers: outliers.npz, percentile: 95}}
evaluation: held-out.npz
certify: {{backbone: {{suite: backbone.npz}}, "head:round": {{suite: round.npz}}}}
"""


def images(pixels: Any, largest: float) -> Any:
    """Enlarge grey images `[n, SIZE / SCALE, SIZE / SCALE]` to float32 `[n, 3, SIZE, SIZE]` with values from 0 to 1."""
    large = np.repeat(np.repeat(pixels / largest, SCALE, axis=1), SCALE, axis=2)
    return np.repeat(large[:, None], 3, axis=1).astype(np.float32)


def photos(count: int, generator: np.random.Generator) -> Any:
    """Cut patches out of two photographs, as small and grey as the digits."""
    side = SIZE // SCALE
    patches = []
    for photo in load_sample_images().images:
        grey = photo.mean(axis=2)
        rows, columns = (length // side for length in grey.shape)
        blocks = grey[: rows * side, : columns * side].reshape(rows, side, columns, side).mean(axis=(1, 3))
        for _ in range(count // 2):
            top, left = generator.integers(0, rows - side), generator.integers(0, columns - side)
            patches.append(blocks[top : top + side, left : left + side])
    return images(np.stack(patches), 255.0)


def train_backbone(
    inputs: torch.Tensor, digits: torch.Tensor, species: torch.Tensor, classes: list[str]
) -> Any:
    """Train a Swin whose embedding separates the groups and the digits; a second head helps during training."""
    torch.manual_seed(SEED)
    config = SwinConfig(
        image_size=SIZE,
        patch_size=4,
        embed_dim=32,
        drop_path_rate=0.0,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=2,
        id2label=dict(enumerate(classes)),
        label2id={name: index for index, name in enumerate(classes)},
    )
    model = SwinForImageClassification(config)
    helper = torch.nn.Linear(model.classifier.in_features, 10)
    optimizer = torch.optim.AdamW([*model.parameters(), *helper.parameters()], lr=2e-3, weight_decay=0.01)
    steps = EPOCHS * len(inputs) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(inputs)).split(BATCH):
            embedding = model.swin(inputs[rows]).pooler_output
            loss = torch.nn.functional.cross_entropy(model.classifier(embedding), species[rows])
            loss = loss + torch.nn.functional.cross_entropy(helper(embedding), digits[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def train_head(embeddings: torch.Tensor, labels: torch.Tensor, count: int) -> torch.nn.Linear:
    """Train a linear classifier of embeddings."""
    torch.manual_seed(SEED)
    head = torch.nn.Linear(embeddings.shape[1], count)
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=200)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(head(embeddings), labels) + 1e-3 * head.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return head


def save_head(path: Path, head: torch.nn.Linear, classes: list[str]) -> None:
    """Save a head together with its classes, in order."""
    weights = {name: value.detach().contiguous() for name, value in head.state_dict().items()}
    save_file(weights, path, {"classes": json.dumps(classes)})


def save_seeded(folder: Path, count: int, width: int) -> None:
    """Save heads with random weights and 5 to 12 classes, to measure the cost of hundreds of heads."""
    torch.manual_seed(SEED)
    for number in range(count):
        size = 5 + number % 8
        classes = [f"disease{index}" for index in range(size)]
        save_head(folder / f"seeded{number:03}.safetensors", torch.nn.Linear(width, size), classes)


def main(work: Path, seeded: int) -> None:
    """Write the checkpoint, the heads, the images and the recipe into `work`."""
    generator = np.random.default_rng(SEED)
    data = load_digits()
    order = generator.permutation(len(data.target))
    inputs, digits = images(data.images[order], 16.0), data.target[order]
    train, calibrate = slice(0, TRAINED), slice(TRAINED, TRAINED + CALIBRATED)
    test = slice(TRAINED + CALIBRATED, None)
    classes = [*GROUPS, NOBODY, *(f"seeded{number:03}" for number in range(seeded))]
    group_of = {digit: number for number, members in enumerate(GROUPS.values()) for digit in members}
    species = torch.tensor([group_of[digit] for digit in digits])
    tensor = torch.from_numpy(inputs)
    model = train_backbone(tensor[train], torch.from_numpy(digits[train]), species[train], classes)
    model.save_pretrained(work / "swin")
    with torch.no_grad():
        embeddings = model.swin(tensor[train]).pooler_output
    (work / "heads").mkdir(exist_ok=True)
    for group, members in GROUPS.items():
        own = np.isin(digits[train], members)
        labels = np.searchsorted(members, digits[train][own])
        head = train_head(embeddings[own], torch.from_numpy(labels), len(members))
        names = [f"digit{digit}" for digit in members]
        save_head(work / "heads" / f"{group}.safetensors", head, names)
    save_seeded(work / "heads", seeded, embeddings.shape[1])
    np.savez(work / "fit.npz", input=inputs[train])
    np.savez(work / "calibrate.npz", input=inputs[calibrate])
    np.savez(work / "held-out.npz", input=inputs[test])
    np.savez(work / "backbone.npz", input=inputs[test], labels=species[test].numpy())
    own = np.isin(digits[test], GROUPS["round"])
    labels = np.searchsorted(GROUPS["round"], digits[test][own])
    np.savez(work / "round.npz", input=inputs[test][own], labels=labels)
    np.savez(work / "outliers.npz", input=photos(400, generator))
    (work / "family.yaml").write_text(RECIPE.format(nobody=NOBODY), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path, help="a new directory")
    parser.add_argument("--seeded", type=int, default=0, help="this many more heads, of seeded weights")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.work.mkdir(parents=True)
    main(given.work, given.seeded)
