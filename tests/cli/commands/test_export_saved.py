"""`reg export CHECKPOINT` without a task, from a saved image classifier to the class of a photograph."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.tasks.saved_images import LABELS, photograph, save


@pytest.mark.more
def test_a_saved_vit_is_exported_published_and_run(reg, tmp_path):
    import torch
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    save(tmp_path / "vit")
    photograph(tmp_path / "photo.png")
    made = reg("export", "vit", "--name", "acme/vit", "--quantize")
    assert made.ended(0, "task image-classification: config.json says ViTForImageClassification")
    manifest = reg("show", "acme/vit", "--json").json
    assert (manifest["task"], manifest["labels"]) == ("image-classification", list(LABELS))
    assert manifest["preprocessing"]["size"] == [32, 32]
    assert {file["path"]: file["role"] for file in manifest["files"]} == {
        "config.json": "config",
        "id2label.json": "labels",
        "preprocessor_config.json": "other",
    }
    full, small = manifest["artifacts"]
    assert (full["precision"], small["precision"], small["format"]) == ("float32", "int8", "onnx-int8")
    assert full["opset_imports"] == {"ai.onnx": 18}
    assert [dim["kind"] for dim in full["metadata"]["inputs"][0]["shape"]] == ["dynamic"] + 3 * ["static"]
    parity = next(check for check in full["checks"] if check["metric"] == "max_abs_diff")
    assert parity["verdict"] == "pass" and parity["value"] < 1e-5
    assert reg("run", "acme/vit", "--self-test").ended(0, "pass")

    answer = reg("run", "acme/vit", "--image", "photo.png", "--json").json
    pixels = AutoImageProcessor.from_pretrained("vit")(Image.open("photo.png"), return_tensors="pt")
    model = AutoModelForImageClassification.from_pretrained("vit").eval()
    with torch.no_grad():
        scores, order = model(**pixels).logits[0].softmax(0).sort(descending=True)
    assert [item["label"] for item in answer["classes"]] == [model.config.id2label[int(n)] for n in order]
    np.testing.assert_allclose([item["score"] for item in answer["classes"]], scores, atol=1e-5)
    assert (answer["activation"], answer["path"]) == ("softmax", "model.onnx")
    shown = reg("run", "acme/vit", "--image", "photo.png", "--precision", "int8").out
    assert "SCORE" in shown and all(label in shown for label in LABELS)

    assert reg("run", "acme/vit", "--image", "vit/config.json").ended(2, "is not an image that Pillow reads")
    Image.fromarray(np.full((40, 40), 30_000, np.uint16)).save("deep.png")
    assert reg("run", "acme/vit", "--image", "deep.png").ended(2, "deep.png has more than 8 bits")
    assert reg("run", "acme/vit", "--image", "absent.png").ended(3, "there is no image absent.png")
    assert reg("run", "acme/vit", "--image", "photo.png", "--self-test").ended(2, "say what to run it on")
    again = reg("export", "vit", "--name", "acme/vit", "--task", "image-classification", "--quantize")
    assert again.ended(0, "nothing new") and "config.json says" not in again.err


def test_an_image_for_a_version_that_takes_none(reg, make_checkpoint, tmp_path):
    made = reg("export", make_checkpoint(), "--name", "acme/pii")
    assert made.status == 0 and "task token-classification: config.json says BertFor" in made.err
    refused = reg("run", "acme/pii", "--image", photograph(tmp_path / "a.png"))
    assert refused.ended(2, "acme/pii", "--text")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--max-seq-length 9", "--max-seq-length is of texts"),
        ("--opset 17", "there is no opset 17 to export to"),
        ("--int8-embeddings", "add --quantize"),
        ("--task text-classification", "not a text classifier"),
        ("--task feature-extraction", "ViTModel reads pixel_values, and the task gives texts alone"),
    ],
)
def test_options_that_do_not_fit_an_image_classifier(words, message, reg, tmp_path):
    save(tmp_path / "vit")
    task = () if "--task" in words else ("--task", "image-classification")
    assert reg("export", "vit", "--name", "acme/vit", *task, *words.split()).ended(2, message)


@pytest.mark.large
@pytest.mark.more
def test_a_trained_classifier_is_certified_by_its_first_class(reg, tmp_path):
    """A ViT trained on the digits of scikit-learn for some seconds: certified INT8, and the digit in a file."""
    rows, labels, held = trained_on_digits(tmp_path / "vit")
    np.savez(tmp_path / "suite.npz", pixel_values=rows, labels=labels)
    assert (
        reg("export", "vit", "--name", "acme/digits", "--quantize", "--eval-suite", "suite.npz").status == 0
    )
    manifest = reg("show", "acme/digits", "--json").json
    small = manifest.get("manifest", manifest)["artifacts"][1]
    assert small["certification"]["state"] == "certified"
    accuracy = {check["name"]: check["value"] for check in small["checks"]}
    assert accuracy["top_1"] > 0.85, accuracy
    right = 0
    for number, image in enumerate(held[:10]):
        image.save(tmp_path / "digit.png")
        first = reg("run", "acme/digits", "--image", "digit.png", "--json").json["classes"][0]
        right += first["label"] == f"digit {labels[number]}"
    assert right >= 8


def trained_on_digits(directory: Path) -> tuple[Any, Any, list[Any]]:
    """Train a tiny ViT; return the processor's numbers, the classes and the images of 450 digits that it did not see."""
    import torch
    import transformers
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = [Image.fromarray((one * 15.9).astype(np.uint8)).convert("RGB") for one in digits.images]
    processor = transformers.ViTImageProcessorPil(size={"height": 16, "width": 16})
    rows = processor(images, return_tensors="pt")["pixel_values"]
    order = np.random.default_rng(0).permutation(len(rows))
    seen, held = torch.from_numpy(order[450:]), order[:450]
    names = {
        "id2label": {n: f"digit {n}" for n in range(10)},
        "label2id": {f"digit {n}": n for n in range(10)},
    }
    config = transformers.ViTConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=16, patch_size=4,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **names,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.ViTForImageClassification(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        classes = torch.from_numpy(digits.target)
        for _ in range(40):
            for batch in seen[torch.randperm(len(seen))].split(64):
                loss = model(pixel_values=rows[batch], labels=classes[batch]).loss
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    return rows[held].numpy(), digits.target[held], [images[number] for number in held]
