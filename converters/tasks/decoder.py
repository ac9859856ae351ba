"""Causal language models as one graph with a cache of keys and values; tensors have Optimum's and Transformers.js's names.

Inputs: `input_ids` (the new tokens), `attention_mask`, `position_ids`, and `past_key_values.N.key` and `.value` of earlier
tokens, empty for a prompt. Outputs: `logits`, `present.N.key` and `.value`. The graph is published only if, run in ONNX
Runtime alone, it generates the same tokens as the model. The pass `ModelBuilder` makes another graph, for
onnxruntime-genai: see `TextGeneration`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxreg.converters.passes.merge_decoders import PAST, PRESENT
from onnxreg.converters.source.source_files import GENERATION_CONFIG
from onnxreg.converters.tasks.checkpoint import LoadedCheckpoint
from onnxreg.converters.tasks.proof import Proof, answer_of
from onnxreg.converters.tasks.saved import Graphs, Saved, part_of
from onnxreg.converters.tasks.task import Part
from onnxreg.converters.tasks.text import REQUIRED, TextOptions, longest, sample_feeds

INPUTS = (*REQUIRED, "position_ids")
BATCH, NEW, EARLIER = "batch_size", "sequence_length", "past_sequence_length"
SIZES = ((2, 5, 3), (1, 0, 6), (3, 9, 1))
"""(rows, earlier tokens, new tokens) of each sample; with several rows, the first row begins with padding."""


class CausalDecoder(Saved):
    """Task of causal language models for any runtime; the pass `TransformersExport` makes the graph."""

    exporter = "TransformersExport"
    Options = TextOptions

    def beside(self, directory: Path) -> Sequence[str]:
        return (GENERATION_CONFIG,)

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        import numpy as np

        length = longest(int(self.options.max_seq_length), checkpoint.model)
        feeds = sample_feeds(checkpoint.tokenizer, checkpoint.config, REQUIRED, length)
        tokens = feeds[1]["input_ids"]
        prompt = dict(zip(REQUIRED, (tokens[:, :6], np.ones_like(tokens[:, :6])), strict=True))
        proof = Proof([answer_of(checkpoint.model, prompt)])
        return Graphs({"": _part(_module(checkpoint.model), tokens)}, INPUTS, length, proof=proof)


def _module(model: Any) -> Any:
    """Wrap a model to take and give its cache as flat tensors; every layer caches all tokens, even with a sliding window."""
    import torch
    from transformers import DynamicCache

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, **tensors: Any) -> Any:
            cached = [tensor for name, tensor in tensors.items() if name.startswith(PAST)]
            cache = DynamicCache([tuple(cached[at : at + 2]) for at in range(0, len(cached), 2)])
            plain = {name: tensors[name] for name in INPUTS}
            result = self.model(**plain, past_key_values=cache, use_cache=True, return_dict=True)
            layers = result.past_key_values.layers
            return (result.logits, *(state for layer in layers for state in (layer.keys, layer.values)))

    return Decoder().eval()


def _part(module: Any, tokens: Any) -> Part:
    """Make the part, with samples of several sizes; the module itself computes the keys and values of earlier tokens."""
    import numpy as np
    import torch

    def feed(ids: Any, mask: Any) -> dict[str, Any]:
        """Make the inputs for new tokens; positions count only the tokens that the mask keeps."""
        positions = (mask.cumsum(1) - 1).clip(0)[:, -ids.shape[1] :]
        return dict(zip(INPUTS, (ids, mask, positions), strict=True))

    ids, feeds = np.resize(tokens.reshape(-1), (3, 16)), []
    for rows, earlier, new in SIZES:
        mask = np.ones((rows, earlier + new), np.int64)
        mask[0, :2] = rows == 1
        before = max(earlier, 1)
        plain = feed(ids[:rows, :before], mask[:, :before])
        with torch.no_grad():
            _, *past = module(**{name: torch.from_numpy(array) for name, array in plain.items()})
        names = [f"{layer}.{kind}" for layer in range(len(past) // 2) for kind in ("key", "value")]
        states = {PAST + name: state[:, :, :earlier].numpy() for name, state in zip(names, past, strict=True)}
        feeds.append({**feed(ids[:rows, earlier : earlier + new], mask), **states})
    total = f"{EARLIER} + {NEW}"
    axes = {name: {0: BATCH, 1: NEW} for name in ("input_ids", "position_ids", "logits")}
    axes |= {"attention_mask": {0: BATCH, 1: total}}
    axes |= {f"{PAST}{name}": {0: BATCH, 2: EARLIER} for name in names}
    axes |= {f"{PRESENT}{name}": {0: BATCH, 2: total} for name in names}
    return part_of(module, feeds, axes, ("logits", *(f"{PRESENT}{name}" for name in names)), example=0)
