"""The fixed sample of a checkpoint that reads tokens."""

import inspect
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from onnxreg.converters.passes.tools import torch_model
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.runtime import golden
from onnxreg.converters.tasks.checkpoints.checkpoint import LoadedCheckpoint
from onnxreg.converters.tasks.task import Sample

REQUIRED = ("input_ids", "attention_mask")
OPTIONAL = ("token_type_ids",)
SEGMENT_WEIGHTS = ("seg_embed", "token_type_embeddings.weight")
"""Ends of the names of weights for token types, in models whose config does not count the types (XLNet)."""
ROW_LENGTHS = ((13,), (48, 31, 7))
"""Tokens of each row of the short batches: one without padding, one with."""

SENTENCES = (
    "The patient was seen on 2024-03-18 by Dr. Maria Lindqvist and can be reached at +1 (555) 010-4477.",
    "Please send the invoice to 12 Harbour Street, Apt. 4B, Springfield, or to anna.keller@example.org.",
    "Le dossier n° 88-1204 a été transmis au médecin traitant; la prochaine visite est fixée au 7 mai.",
    "昨日、田中さんから電話がありました。住所は変わっていません。",
)


def longest(max_length: int, model: Any) -> int:
    """Limit the requested length of the longest row, in tokens, to what the model can take."""
    return min(max_length, max_positions(model))


def random_feeds(config: Any, inputs: Sequence[str], max_length: int) -> list[Feed]:
    """Make the fixed sample of a checkpoint without a tokenizer: seeded random tokens of its config's vocabulary."""
    padding = getattr(config, "pad_token_id", None)
    vocabulary = [token for token in range(config.vocab_size) if token != padding]
    return _feeds([], vocabulary, padding, inputs, max_length)


def sample_feeds(tokenizer: Any, inputs: Sequence[str], max_length: int) -> list[Feed]:
    """Make the fixed sample: a short row, a padded batch of three, and one row of `max_length` tokens.

    The second row of the batch is a pair of texts, with both token types, if the graph takes them.
    Sentences through the tokenizer, then seeded random tokens of its vocabulary, so that both likely and
    unlikely inputs are met.
    """
    ids = tokenizer(" ".join(SENTENCES), add_special_tokens=True, verbose=False)["input_ids"]
    special = set(tokenizer.all_special_ids)
    vocabulary = [token for token in range(len(tokenizer)) if token not in special]
    return _feeds(ids, vocabulary, tokenizer.pad_token_id, inputs, max_length)


def _feeds(
    first: list[int], vocabulary: Sequence[int], padding: int | None, inputs: Sequence[str], max_length: int
) -> list[Feed]:
    draw = random.Random(0)
    ids = first + draw.choices(vocabulary, k=max(max_length, len(first), sum(map(sum, ROW_LENGTHS))))
    rows = [
        [ids[start : start + length] for start, length in _windows(lengths, max_length)]
        for lengths in ROW_LENGTHS
    ]
    return [_feed(batch, inputs, padding or 0) for batch in (*rows, [ids[:max_length]])]


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
        if "token_type_ids" in arrays and index == 1:
            arrays["token_type_ids"][index, len(row) // 4 : len(row)] = 1
    return arrays


def tensors(feed: Feed) -> dict[str, Any]:
    """Convert a feed to torch tensors, for tracing."""
    import torch

    return {name: torch.from_numpy(array) for name, array in feed.items()}


def measure(subject: TorchModel, feeds: Sequence[Feed]) -> Sample:
    """Run a module on feeds; return the sample."""
    axes = {name: subject.axes_of(name) for name in subject.outputs}
    per_token = frozenset(name for name, axis_names in axes.items() if axis_names.get(1) == "sequence")
    expected = torch_model.run(subject, feeds)
    vectors = (array.shape[2:] for name, array in expected[0].items() if name in per_token)
    width = max((math.prod(shape) for shape in vectors), default=1)
    return Sample(feeds, expected, per_token, golden.feeds_of(feeds, width))


def input_names(checkpoint: LoadedCheckpoint) -> tuple[str, ...]:
    """Return the inputs of the graph: `token_type_ids` if texts get several, and the model tells them apart.

    Without a tokenizer, texts may get several.
    """
    tokenizer = checkpoint.tokenizer
    uses = _distinguishes_types(checkpoint.model) and (tokenizer is None or _makes_types(tokenizer))
    return REQUIRED + OPTIONAL if uses else REQUIRED


def _distinguishes_types(model: Any) -> bool:
    """Tell if a model takes `token_type_ids` and has weights for several; decoders read them as words."""
    if "token_type_ids" not in inspect.signature(model.forward).parameters:
        return False
    types = getattr(model.config, "type_vocab_size", None)
    if types is None:
        return any(name.endswith(SEGMENT_WEIGHTS) for name, _ in model.named_parameters())
    return bool(types > 1)


def _makes_types(tokenizer: Any) -> bool:
    """Tell if a text or a pair of texts gets a token type other than 0."""
    backend = tokenizer.backend_tokenizer
    return any(map(any, (backend.encode("a").type_ids, backend.encode("a", "a").type_ids)))


def max_positions(model: Any) -> int:
    """Return the number of tokens a model can take; positions of RoBERTa-class models begin after the padding
    index.
    """
    limit = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        return 2**31 - 1
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return limit - int(module.padding_idx) - 1
    return limit
