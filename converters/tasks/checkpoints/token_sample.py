"""The fixed sample of a checkpoint that reads tokens."""

import inspect
import math
import random
from collections.abc import Sequence
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


def sample_feeds(tokenizer: Any, config: Any, inputs: Sequence[str], max_length: int) -> list[Feed]:
    """Make the fixed sample: a short row, a padded batch of three, and one row of `max_length` tokens.

    The second row of the batch is a pair of texts, with both token types, if the graph takes them. Sentences through the
    tokenizer, then seeded random tokens of its vocabulary, so that both likely and unlikely inputs are met; without a
    tokenizer random tokens of the config's vocabulary.
    """
    import numpy as np

    if tokenizer is None:
        ids, padding = [], getattr(config, "pad_token_id", None)
        vocabulary = [token for token in range(config.vocab_size) if token != padding]
    else:
        ids = tokenizer(" ".join(SENTENCES), add_special_tokens=True, verbose=False)["input_ids"]
        special, padding = set(tokenizer.all_special_ids), tokenizer.pad_token_id
        vocabulary = [token for token in range(len(tokenizer)) if token not in special]
    most = max(max_length, len(ids), sum(map(sum, ROW_LENGTHS)))
    ids = ids + random.Random(0).choices(vocabulary, k=most)
    feeds: list[Feed] = []
    for lengths in (*ROW_LENGTHS, (max_length,)):
        widths = [min(length, max_length) for length in lengths]
        arrays = {name: np.zeros((len(widths), max(widths)), dtype=np.int64) for name in inputs}
        arrays["input_ids"][:] = padding or 0
        start = 0
        for index, width in enumerate(widths):
            arrays["input_ids"][index, :width] = ids[start : start + width]
            arrays["attention_mask"][index, :width] = 1
            if "token_type_ids" in arrays and index == 1:
                arrays["token_type_ids"][index, width // 4 : width] = 1
            start += width
        feeds.append(arrays)
    return feeds


def measure(subject: TorchModel, feeds: Sequence[Feed]) -> Sample:
    """Run a module on feeds; return the sample."""
    axes = {name: subject.axes_of(name) for name in subject.outputs}
    per_token = frozenset(name for name, axis_names in axes.items() if axis_names.get(1) == "sequence")
    expected = torch_model.run(subject, feeds)
    vectors = (array.shape[2:] for name, array in expected[0].items() if name in per_token)
    width = max((math.prod(shape) for shape in vectors), default=1)
    return Sample(feeds, expected, per_token, golden.feeds_of(feeds, width))


def input_names(checkpoint: LoadedCheckpoint) -> tuple[str, ...]:
    """Return the inputs of the graph: `token_type_ids` if texts or pairs get several, and the model tells them apart.

    Without a tokenizer, texts may get several. Decoders read token types as words.
    """
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    if "token_type_ids" not in inspect.signature(model.forward).parameters:
        return REQUIRED
    types = getattr(model.config, "type_vocab_size", None)
    if types is None:
        takes = any(name.endswith(SEGMENT_WEIGHTS) for name, _ in model.named_parameters())
    else:
        takes = types > 1
    if takes and tokenizer is not None:
        encode = tokenizer.backend_tokenizer.encode
        takes = any(map(any, (encode("a").type_ids, encode("a", "a").type_ids)))
    return REQUIRED + OPTIONAL if takes else REQUIRED


def longest(max_length: int, model: Any) -> int:
    """Limit the requested length of the longest row, in tokens, to what the model can take.

    Positions of RoBERTa-class models begin after the padding index.
    """
    limit = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        return max_length
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return min(max_length, limit - int(module.padding_idx) - 1)
    return min(max_length, limit)
