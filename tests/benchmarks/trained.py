"""Small models that are trained here, in a minute, with suites of what they were not trained on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from pii_data import Sentence, held_out_sentences, training_sentences
from sklearn.datasets import load_digits

TEXTS, STEPS, BATCH = 600, 120, 24
SIDE, EPOCHS = 32, 20


def text_classifier(encoder: Path, directory: Path) -> None:
    """The first two layers of an encoder, trained to name the first kind of personal data in a sentence."""
    classes = sorted({_kind(one) for one in training_sentences(400, 1)})
    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        encoder,
        num_hidden_layers=2,
        id2label=dict(enumerate(classes)),
        label2id={name: at for at, name in enumerate(classes)},
    )
    sentences = training_sentences(STEPS * BATCH, 2)

    def loss(number: int) -> Any:
        chosen = sentences[number * BATCH : (number + 1) * BATCH]
        encoded = tokenizer([one.text for one in chosen], padding=True, return_tensors="pt")
        return model(**encoded, labels=torch.tensor([classes.index(_kind(one)) for one in chosen])).loss

    _train(model, STEPS, 3e-4, loss)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    for number, name in enumerate(("choose", "confirm"), start=3):
        rows = [
            {"text": one.text, "label": _kind(one)}
            for one in held_out_sentences(TEXTS, number)
            if _kind(one) in classes
        ]
        (directory / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _kind(sentence: Sentence) -> str:
    return sentence.spans[0].label if sentence.spans else "NONE"


def vit(directory: Path) -> None:
    """A ViT of four layers for handwritten digits; `calibration.npz` has rows that it was trained on."""
    torch.manual_seed(0)
    digits = load_digits()
    pixels = np.repeat(np.repeat(digits.images / 8 - 1, SIDE // 8, axis=1), SIDE // 8, axis=2)
    pixels = np.repeat(pixels[:, None], 3, axis=1).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(pixels))
    config = transformers.ViTConfig(
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=SIDE,
        patch_size=8,
        num_labels=10,
    )
    model, trained = transformers.ViTForImageClassification(config), order[:997]
    inputs, labels = torch.from_numpy(pixels), torch.from_numpy(digits.target)
    batches = [rows for _ in range(EPOCHS) for rows in torch.randperm(997).split(32)]
    _train(
        model,
        len(batches),
        5e-4,
        lambda number: model(inputs[trained[batches[number]]], labels=labels[trained[batches[number]]]).loss,
    )
    model.save_pretrained(directory)
    processor = transformers.ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})
    processor.save_pretrained(directory)
    for name, rows in (("choose", order[997:1397]), ("confirm", order[1397:])):
        np.savez(directory / f"{name}.npz", pixel_values=pixels[rows], labels=digits.target[rows])
    np.savez(directory / "calibration.npz", pixel_values=pixels[order[:100]])


def _train(model: Any, steps: int, rate: float, loss: Any) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
    model.train()
    for number in range(steps):
        optimizer.zero_grad()
        loss(number).backward()
        optimizer.step()
        schedule.step()
    model.eval()
