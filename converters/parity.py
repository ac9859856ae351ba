"""How far a graph's logits are from its parent's, on the positions that are not padding."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.runtime import load_session, one_torch_thread
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import ConversionError

LENGTHS = ((13,), (48, 31, 7))
"""Tokens of each row of the short batches: one without padding, one with."""

SENTENCES = (
    "The patient was seen on 2024-03-18 by Dr. Maria Lindqvist and can be reached at +1 (555) 010-4477.",
    "Please send the invoice to 12 Harbour Street, Apt. 4B, Springfield, or to anna.keller@example.org.",
    "Le dossier n° 88-1204 a été transmis au médecin traitant; la prochaine visite est fixée au 7 mai.",
    "昨日、田中さんから電話がありました。住所は変わっていません。",
)


@dataclass(frozen=True)
class Agreement:
    """The difference between two lists of logits over `positions` unpadded token positions.

    `max_abs_diff` is in logits, `min_cosine` the lowest cosine of two logit vectors at one position, and
    `argmax_agreement` the share of positions with the same best label. `scale` is the parent's largest logit, at
    least 1: what a difference in full precision is measured by.
    """

    positions: int
    max_abs_diff: float
    min_cosine: float
    argmax_agreement: float
    scale: float = 1.0


Feed = Mapping[str, Any]
"""Input name to int64 array `[batch, sequence]`."""


def sample_feeds(tokenizer: Any, inputs: Sequence[str], max_length: int) -> list[Feed]:
    """The fixed sample: a short row, a padded batch of three, and one row of `max_length` tokens.

    Sentences through the tokenizer, then seeded random tokens of its vocabulary, so that both likely and unlikely
    inputs are met.
    """
    ids = tokenizer(" ".join(SENTENCES), add_special_tokens=True, verbose=False)["input_ids"]
    special = set(tokenizer.all_special_ids)
    vocabulary = [token for token in range(len(tokenizer)) if token not in special]
    draw = random.Random(0)
    ids += draw.choices(vocabulary, k=max(max_length, len(ids)))
    rows = [
        [ids[start : start + length] for start, length in _windows(lengths, max_length)]
        for lengths in LENGTHS
    ]
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    return [_feed(batch, inputs, padding) for batch in (*rows, [ids[:max_length]])]


def _windows(lengths: Sequence[int], max_length: int) -> Iterator[tuple[int, int]]:
    start = 0
    for length in lengths:
        yield start, min(length, max_length)
        start += min(length, max_length)


def _feed(rows: Sequence[Sequence[int]], inputs: Sequence[str], padding: int) -> Feed:
    import numpy as np

    width = max(len(row) for row in rows)
    arrays = {name: np.zeros((len(rows), width), dtype=np.int64) for name in inputs}
    arrays["input_ids"][:] = padding
    for index, row in enumerate(rows):
        arrays["input_ids"][index, : len(row)] = row
        arrays["attention_mask"][index, : len(row)] = 1
    return arrays


def feeds_digest(feeds: Sequence[Feed]) -> Digest:
    """The digest of what the sample feeds, for `Check.dataset`."""
    return Digest.of(b"".join(feed[name].tobytes() for feed in feeds for name in sorted(feed)))


def torch_logits(model: Any, feeds: Sequence[Feed]) -> list[Any]:
    """The logits of a torch model, float32 `[batch, sequence, labels]` for each feed, computed on one thread."""
    import torch

    with one_torch_thread(), torch.inference_mode():
        return [
            model(**{name: torch.from_numpy(feed[name]) for name in feed}).logits.numpy() for feed in feeds
        ]


def graph_logits(path: Path, feeds: Sequence[Feed]) -> list[Any]:
    """The logits of an ONNX or ORT-format file in ONNX Runtime, computed on one thread so that they repeat.

    Raises ConversionError, naming the file, where it does not run.
    """
    session = load_session(path)
    try:
        return [session.run(["logits"], dict(feed))[0] for feed in feeds]
    except Exception as error:
        raise ConversionError(f"{path.name} does not run in ONNX Runtime: {type(error).__name__}") from error


def compare(expected: Sequence[Any], got: Sequence[Any], feeds: Sequence[Feed], what: str) -> Agreement:
    """Compare two lists of logits; ConversionError, naming `what`, for a shape that differs, NaN or infinity."""
    import numpy as np

    if [array.shape for array in expected] != [array.shape for array in got]:
        raise ConversionError(f"{what}: the logits have another shape than the parent's")
    masks = [feed["attention_mask"].astype(bool) for feed in feeds]
    parent = np.concatenate([array[mask] for array, mask in zip(expected, masks, strict=True)]).astype(
        np.float64
    )
    child = np.concatenate([array[mask] for array, mask in zip(got, masks, strict=True)]).astype(np.float64)
    if not np.isfinite(parent).all():
        raise ConversionError("the checkpoint itself gives NaN or infinity", "check its weights")
    if not np.isfinite(child).all():
        raise ConversionError(f"{what}: NaN or infinity in the logits")
    norms = np.linalg.norm(parent, axis=1) * np.linalg.norm(child, axis=1)
    cosines = np.divide((parent * child).sum(axis=1), norms, out=np.ones(len(parent)), where=norms > 0)
    return Agreement(
        positions=len(parent),
        max_abs_diff=float(np.abs(parent - child).max()),
        min_cosine=float(cosines.min()),
        argmax_agreement=float((parent.argmax(axis=1) == child.argmax(axis=1)).mean()),
        scale=max(1.0, float(np.abs(parent).max())),
    )


def checks(
    agreement: Agreement, dataset: Digest, max_abs_diff: float | None = None, floor: float | None = None
) -> list[dict[str, Any]]:
    """`manifest.Check` entries in their JSON form; figures have six significant digits.

    Args:
        max_abs_diff: the most that logits may differ by, if that is limited.
        floor: the least that `argmax_agreement` may be, if that is limited.
    """
    limits = {
        "max_abs_diff": (max_abs_diff, max_abs_diff is not None and agreement.max_abs_diff <= max_abs_diff),
        "min_cosine": (None, True),
        "argmax_agreement": (floor, floor is not None and agreement.argmax_agreement >= floor),
    }
    return [
        {
            "name": "parity",
            "metric": metric,
            "value": float(f"{getattr(agreement, metric):.6g}"),
            "samples": agreement.positions,
            "dataset": str(dataset),
            **_judged(limit, within),
        }
        for metric, (limit, within) in limits.items()
    ]


def _judged(limit: float | None, within: bool) -> dict[str, Any]:
    if limit is None:
        return {"verdict": "info"}
    return {"limit": float(f"{limit:.6g}"), "verdict": "pass" if within else "fail"}
