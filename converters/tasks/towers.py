"""Tasks of models such as CLIP, which map texts and images (or sounds) to one vector space; graphs as in Transformers.js.

| member | file | inputs, to outputs |
|---|---|---|
| `text` | `text_model.onnx` | `input_ids` (and `attention_mask`), to a vector |
| `vision`, `audio` | `vision_model.onnx`, `audio_model.onnx` | `pixel_values` or `input_features`, to a vector |
| `model` | `model.onnx` | both, to the logits of each pair, and to vectors of length 1 |

The vectors are called `text_embeds`, `image_embeds` and `audio_embeds`, in SigLIP `pooler_output`. The single towers of CLIP
and SigLIP do not scale their vectors to length 1.
"""

from pathlib import Path
from typing import Any

from onnxreg.converters.tasks.processed import Processed, Processor
from onnxreg.converters.tasks.saved import Graphs, LoadedCheckpoint, module_of, part_of
from onnxreg.converters.tasks.task import SAVE_TOKENIZER, LocatedSource
from onnxreg.converters.tasks.text import REQUIRED, TextOptions, longest, sample_feeds
from onnxreg.schema.core.errors import InputError

TEXT, WHOLE = "text", "model"
SOUND_FILES = {TEXT: "text_model.onnx", "audio": "audio_model.onnx", WHOLE: "model.onnx"}
"""The members of a model of sounds and texts, such as CLAP."""
MASKED = ("clip", "clap")
"""Families whose text tower reads a mask; in other families, texts are padded to one length."""


class Towers(Processed):
    """Task of models of images (or sounds) and texts: a graph for each, and one for both."""

    Options = TextOptions
    members = {TEXT: "text_model.onnx", "vision": "vision_model.onnx", WHOLE: "model.onnx"}
    products = ("MatMul", "Gemm")

    def find(self, source: str) -> LocatedSource:
        located = super().find(source)
        if located.lacks_tokenizer:
            raise InputError("the checkpoint has no tokenizer, and the model reads texts", SAVE_TOKENIZER)
        return located

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        model, has_mask = checkpoint.model, checkpoint.config.model_type in MASKED
        length = longest(int(self.options.max_seq_length), model.text_model)
        inputs, row = (REQUIRED, {1: "sequence"}) if has_mask else (REQUIRED[:1], {})
        texts = _texts(checkpoint.tokenizer, checkpoint.config.text_config, length, has_mask)
        sense = self.head.modality  # as in transformers' names of methods and outputs
        text, other = "text_embeds", f"{sense}_embeds"
        own = (text, other) if has_mask else ("pooler_output", "pooler_output")
        axes = {**{key: {0: "batch", **row} for key in inputs}, own[0]: {0: "batch"}}
        processor = Processor(checkpoint.directory, sense, self.trust_remote_code)
        features = getattr(model, f"get_{sense}_features")
        tower = processor.part(vectors(features), {}, {own[1]: ("batch",)})
        pairs = [
            {**words, processor.input: feed[processor.input][:2]}  # a trace joins axes of one size
            for words, feed in zip(texts, (*tower.feeds, tower.feeds[0]), strict=True)
        ]
        rows, columns = {0: "text_batch"}, {0: f"{sense}_batch"}
        both = {**{key: {**rows, **row} for key in inputs}, processor.input: columns}
        results = {
            f"logits_per_{sense}": {**columns, 1: rows[0]},
            "logits_per_text": {**rows, 1: columns[0]},
        }
        results |= {text: rows, other: columns}
        parts = {
            TEXT: part_of(vectors(model.get_text_features), texts, axes, own[:1], True),
            [*self.members][1]: tower,
            WHOLE: part_of(model, pairs, {**both, **results}, results),
        }
        return Graphs(parts, inputs, length, fields=processor.contract())


def vectors(features: Any) -> Any:
    """Make a module that gives the vector of a tower; `features` is the model's own method for the tower."""
    return module_of(
        lambda **inputs: features(**inputs, return_dict=True).pooler_output, model=features.__self__
    )


def _texts(tokenizer: Any, config: Any, length: int, has_mask: bool) -> list[Any]:
    """Make the sample of texts; each row ends with the end token. Without a mask, all rows are padded to one length."""
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
