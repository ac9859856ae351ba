"""The fixed sample on which every artifact of an export is compared with the checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from onnxreg.converters import parity
from onnxreg.converters.android.contract import OPTIONAL, REQUIRED
from onnxreg.converters.source import LoadedCheckpoint
from onnxreg.schema.digest import Digest


@dataclass(frozen=True)
class Sample:
    """Feeds, the checkpoint's own logits on them, and the longest row in tokens."""

    feeds: Sequence[parity.Feed]
    expected: Sequence[Any]
    labels: int
    max_length: int

    @cached_property
    def digest(self) -> Digest:
        return parity.feeds_digest(self.feeds)

    def tensors(self) -> dict[str, Any]:
        """The padded batch as torch tensors, for tracing."""
        import torch

        return {name: torch.from_numpy(array) for name, array in self.feeds[1].items()}


def draw_sample(checkpoint: LoadedCheckpoint, max_length: int) -> Sample:
    """The sample for a checkpoint; rows have at most `max_length` tokens, and no more than the model can take."""
    longest = min(max_length, max_positions(checkpoint.model))
    feeds = parity.sample_feeds(checkpoint.tokenizer, input_names(checkpoint), longest)
    expected = parity.torch_logits(checkpoint.model, feeds)
    return Sample(feeds, expected, len(checkpoint.labels), longest)


def input_names(checkpoint: LoadedCheckpoint) -> tuple[str, ...]:
    """The inputs of the graph: `token_type_ids` where the tokenizer makes them and the model takes them."""
    import inspect

    takes = inspect.signature(checkpoint.model.forward).parameters
    makes = checkpoint.tokenizer.model_input_names
    return REQUIRED + tuple(name for name in OPTIONAL if name in takes and name in makes)


def max_positions(model: Any) -> int:
    """How many tokens a model can take; positions of RoBERTa-class models begin after the padding index."""
    limit = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        return 2**31 - 1
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return limit - int(module.padding_idx) - 1
    return limit
