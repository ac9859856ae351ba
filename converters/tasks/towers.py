"""Models of images and texts, such as CLIP: two graphs whose vectors have one space, named as Transformers.js does.

| member | file | from, to |
|---|---|---|
| `text` | `text_model.onnx` | `input_ids` (and `attention_mask`), to a vector |
| `vision` | `vision_model.onnx` | `pixel_values`, to a vector |

The vectors are called `text_embeds` and `image_embeds`, in SigLIP `pooler_output` both. They are not of length 1.
"""

from pathlib import Path
from typing import Any

from onnxreg.converters.source.source_files import TOKENIZER
from onnxreg.converters.tasks.checkpoint import LoadedCheckpoint
from onnxreg.converters.tasks.processed import Processed, Processor
from onnxreg.converters.tasks.saved import Graphs, Saved, part_of
from onnxreg.converters.tasks.task import SAVE_TOKENIZER, ExportSubject, LocatedSource
from onnxreg.converters.tasks.text import REQUIRED, TextOptions, longest, sample_feeds
from onnxreg.schema.core.errors import InputError

TEXT, VISION = "text", "vision"
MASKED = "clip"
"""The family that reads a mask; others read texts that are padded to one length."""


class Towers(Processed):
    """A model of images and texts, as a graph for each."""

    Options = TextOptions
    members = {TEXT: "text_model.onnx", VISION: "vision_model.onnx"}
    products = ("MatMul", "Gemm")

    def find(self, source: str) -> LocatedSource:
        located = super().find(source)
        if not any((located.location / name).is_file() for name in TOKENIZER):
            raise InputError("the checkpoint has no tokenizer, and the model reads texts", SAVE_TOKENIZER)
        return located

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        return Saved.load(self, source, name, directory)  # with a tokenizer

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        model, has_mask = checkpoint.model, checkpoint.config.model_type == MASKED
        length = longest(int(self.options.max_seq_length), model.text_model)
        inputs, row = (REQUIRED, {0: "batch", 1: "sequence"}) if has_mask else (REQUIRED[:1], {0: "batch"})
        texts = _texts(checkpoint.tokenizer, checkpoint.config.text_config, length, has_mask)
        text, image = ("text_embeds", "image_embeds") if has_mask else ("pooler_output", "pooler_output")
        axes = {**dict.fromkeys(inputs, row), text: {0: "batch"}}
        processor = Processor(checkpoint.directory, self.head.modality, self.trust_remote_code)
        parts = {
            TEXT: part_of(vectors(model.get_text_features), texts, axes, (text,), "text"),
            VISION: processor.part(vectors(model.get_image_features), {}, {image: ("batch",)}),
        }
        return Graphs(parts, inputs, length, fields=processor.contract())


def vectors(features: Any) -> Any:
    """Make a module that gives the vector of a tower; `features` is the model's method for the tower."""
    import torch

    class Vectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = features.__self__

        def forward(self, **inputs: Any) -> Any:
            return features(**inputs, return_dict=True).pooler_output

    return Vectors().eval()


def _texts(tokenizer: Any, config: Any, length: int, has_mask: bool) -> list[Any]:
    """The sample of texts, each with the token that ends it; without a mask all are padded to the same length."""
    import numpy as np

    texts: list[Any] = []
    for feed in sample_feeds(tokenizer, config, REQUIRED, length):
        ids, mask = (feed[name] for name in REQUIRED)
        if tokenizer.eos_token_id is not None:
            ids[range(len(ids)), mask.sum(1) - 1] = tokenizer.eos_token_id
        padding = ((0, 0), (0, length - ids.shape[1]))
        padded = np.pad(ids, padding, constant_values=tokenizer.pad_token_id or 0)
        texts.append({"input_ids": ids, "attention_mask": mask} if has_mask else {"input_ids": padded})
    return texts
