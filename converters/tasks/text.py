"""Tasks of text checkpoints: `TextTask` with a fixed sample, a class for each head; `Pooling` for vectors of texts."""

import inspect
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import PositiveInt

from onnxreg.converters.passes.base import PassParams
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.source.location import locate
from onnxreg.converters.tasks import sentence
from onnxreg.converters.tasks.checkpoint import TOKENIZER_FILE, located_source, require_processor, unloadable
from onnxreg.converters.tasks.heads import PER_ROW, PER_TOKEN, TEXTS, TOKENS, TaskHead
from onnxreg.converters.tasks.processed import Processor
from onnxreg.converters.tasks.saved import Graphs, LoadedCheckpoint, Saved, module_of, part_of
from onnxreg.converters.tasks.task import LocatedSource
from onnxreg.schema.core.errors import InputError

REQUIRED = ("input_ids", "attention_mask")
BOXES, PIXELS = "bbox", "pixel_values"
OTHER_INPUTS = (PIXELS, "input_features", "input_values")
"""Names of inputs for images and sound, which a text does not give."""
MOST_BOX = 1000
"""The width and height of a page, in the units of the input `bbox`."""
SEGMENT_WEIGHTS = ("seg_embed", "token_type_embeddings.weight")
"""Suffixes of weights for token types, in models whose config does not count token types (XLNet)."""
ROW_LENGTHS = ((13,), (48, 31, 7))
"""Numbers of tokens of the rows in the two short batches: one without padding, one with padding."""

SENTENCES = (
    "The patient was seen on 2024-03-18 by Dr. Maria Lindqvist and can be reached at +1 (555) 010-4477.",
    "Please send the invoice to 12 Harbour Street, Apt. 4B, Springfield, or to anna.keller@example.org.",
    "Le dossier n° 88-1204 a été transmis au médecin traitant; la prochaine visite est fixée au 7 mai.",
    "昨日、田中さんから電話がありました。住所は変わっていません。",
)


def sample_feeds(
    tokenizer: Any, config: Any, inputs: Sequence[str], max_length: int, page: Processor | None = None
) -> list[Feed]:
    """Make the fixed sample: a short row; a padded batch of three, the second a pair of texts; a row of `max_length` tokens.

    The tokens of `SENTENCES` come first, then random tokens with a fixed seed. Without a tokenizer, all tokens are random.
    On the page of a document model, boxes are in lines, from left to right; its images are those of the processor `page`.
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
        if BOXES in inputs:
            rows, width = arrays["input_ids"].shape
            left, top = np.arange(width) * MOST_BOX // (width + 1), 20 * np.arange(rows)[:, None]
            edges = np.broadcast_arrays(left, top, left + MOST_BOX // (width + 1), top + 20)
            arrays[BOXES] = np.where(arrays["attention_mask"][..., None], np.stack(edges, axis=-1), 0)
        if page is not None:
            arrays[PIXELS] = np.concatenate(page.rows[: len(widths)])
        feeds.append(arrays)
    return feeds


def input_names(checkpoint: LoadedCheckpoint, task: TaskHead) -> tuple[str, ...]:
    """Return the names of the graph's inputs; `token_type_ids` only if both the tokenizer and the model distinguish types.

    A document model takes the box of each token too and, with the head `TOKENS` or `TEXTS`, an image of the page.

    Raises InputError if the model reads other inputs: its graph would have constants in their place.
    """
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    names = inspect.signature(model.forward).parameters
    pages = [name for name in (BOXES, PIXELS) if BOXES in names and name in names]
    if PIXELS in pages and task not in (TOKENS, TEXTS):
        pages = []
    if others := [name for name in OTHER_INPUTS if name in names and name not in pages]:
        raise InputError(
            f"{type(model).__name__} reads {', '.join(others)}, and the task gives texts alone",
            "export it with Optimum, then reg import the directory",
        )
    takes_types = "token_type_ids" in names
    if takes_types:
        has_weights = any(name.endswith(SEGMENT_WEIGHTS) for name, _ in model.named_parameters())
        takes_types = (getattr(model.config, "type_vocab_size", None) or 1 + has_weights) > 1
    if takes_types and tokenizer is not None:
        encode = tokenizer.backend_tokenizer.encode
        takes_types = any(map(any, (encode("a").type_ids, encode("a", "a").type_ids)))
    return (*REQUIRED, *(["token_type_ids"] if takes_types else []), *pages)


def longest(max_length: int, model: Any) -> int:
    """Return the length of the longest row, in tokens: the requested length, or the model's limit if that is smaller."""
    limit = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        return max_length
    for path, module in model.named_modules():
        padding = getattr(module, "padding_idx", None) if path.endswith("position_embeddings") else None
        if padding is not None:  # positions of RoBERTa-class models begin behind it
            return min(max_length, limit - int(padding) - 1)
    return min(max_length, limit)


class TextOptions(PassParams, title="Options"):
    """`max_seq_length` is the longest published length in tokens; a lower limit of the model wins."""

    max_seq_length: PositiveInt = 512


class TextTask(Saved):
    """Task of checkpoints with a head and a fast tokenizer.

    The graph takes `input_ids`, `attention_mask` and maybe `token_type_ids`, int64 `[batch, sequence]`, and gives only the
    head's outputs, in float32. For an encoder without a head, all files of sentence-transformers become companions.
    """

    exporter = "OnnxConversion"
    Options = TextOptions

    def pooling(self, directory: Path) -> sentence.SentenceConfig | None:
        """Return the settings that make one vector from token vectors; None for a task without pooling."""
        return None

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        module, tokenizer, length = checkpoint.model, checkpoint.tokenizer, int(self.options.max_seq_length)
        pooling, settings, resolved = self.pooling(checkpoint.directory), {}, dict[str, Any]()
        if pooling is not None:
            mode = pooling.mode or "mean"
            if pooling.lower_case and tokenizer is not None:
                from tokenizers import normalizers

                backend = tokenizer.backend_tokenizer
                own = filter(None, [backend.normalizer])
                backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
            length = min(length, pooling.max_length or getattr(tokenizer, "model_max_length", length))
            module = pooled(module, mode, pooling)
            prompt = {"prompt": pooling.prompt} if pooling.prompt else {}
            resolved["pooling"] = {"mode": mode, "normalize": pooling.normalize, **prompt}
            if pooling.prompts:
                settings = {"prompts": dict(pooling.prompts), "default_prompt_name": pooling.default_prompt}
        length = longest(length, checkpoint.model)
        inputs = input_names(checkpoint, self.head)
        page = None
        if PIXELS in inputs:
            require_processor(checkpoint.directory, "image")
            page = Processor(checkpoint.directory, "image", self.trust_remote_code)
        feeds = sample_feeds(tokenizer, checkpoint.config, inputs, length, page)
        axis_names = {**dict.fromkeys(inputs, PER_TOKEN), **self.head.outputs}
        axis_names |= {PIXELS: PER_ROW} if page else {}
        axes = {name: dict(enumerate(names)) for name, names in axis_names.items()}
        part = part_of(module, feeds, axes, self.head.outputs, has_golden=page is None)
        return Graphs({"": part}, inputs, length, settings, resolved=resolved)


class PoolingOptions(TextOptions, title="Options"):
    """`mode` and `normalize` replace the checkpoint's settings; the default mode, if the checkpoint has none, is `mean`."""

    mode: sentence.Mode | None = None
    normalize: bool | None = None


class Pooling(TextTask):
    """Task of encoders with pooling: the output `embeddings`, `[batch, hidden]`, has one vector for each text."""

    Options = PoolingOptions

    def find(self, source: str) -> LocatedSource:
        located = super().find(source)
        self.pooling(located.location)
        return located

    def pooling(self, directory: Path) -> sentence.SentenceConfig:
        """Return the checkpoint's pooling settings (with the option `mode`, the defaults instead), changed by the options."""
        config = sentence.SentenceConfig() if self.options.mode else sentence.read_pooling(directory)
        options = {name: value for name, value in self.options if value is not None and hasattr(config, name)}
        return replace(config, **options)


class StaticPooling(Pooling):
    """Task of static embeddings: a text's vector is the mean of its tokens' rows in a table; no network runs.

    As in sentence-transformers, the published tokenizer adds no special tokens.
    """

    quantizer = "EmbeddingQuantization"
    products = ()

    def find(self, source: str) -> LocatedSource:
        location = locate(source, more=sentence.PATTERNS)
        directory, folder = location.directory, sentence.table_of(location.directory) or ""
        self.pooling(directory)
        names = [Path(folder, name).as_posix() for name in (sentence.WEIGHTS, TOKENIZER_FILE)]
        if missing := [name for name in names if not (directory / name).is_file()]:
            raise InputError(
                f"the static embedding has no {missing[0]}", "save it with sentence-transformers"
            )
        return located_source(location, [*names, *sentence.sentence_files(directory)])

    def checkpoint(self, source: LocatedSource) -> LoadedCheckpoint:
        import torch
        from safetensors.torch import load_file
        from transformers import PreTrainedConfig, PreTrainedTokenizerFast

        directory: Path = source.location
        folder = directory / (sentence.table_of(directory) or "")
        try:
            (key, table), *others = load_file(folder / sentence.WEIGHTS).items()
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / TOKENIZER_FILE))
        except Exception as error:
            raise unloadable("the static embedding", directory, error) from error
        if others or table.ndim != 2:
            message = f"{sentence.WEIGHTS} of the static embedding has more than a table: {key[:80]}"
            raise InputError(message, "save it with sentence-transformers")
        backend = tokenizer.backend_tokenizer
        backend.no_padding()
        backend.no_truncation()
        backend.post_processor = None
        if max(tokenizer.get_vocab().values(), default=-1) >= len(table):
            message = f"the tokenizer has more tokens than the table of {len(table)} rows"
            raise InputError(message, "give the tokenizer that it was trained with")

        kind = type("StaticConfig", (PreTrainedConfig,), {"model_type": "static-embedding"})
        config = kind(architectures=[sentence.STATIC], hidden_size=table.shape[1])
        rows = torch.nn.Embedding(len(table), table.shape[1], _weight=table.float())

        def look_up(input_ids: Any, **others: Any) -> Any:
            return SimpleNamespace(last_hidden_state=rows(input_ids))

        model = module_of(look_up, rows=rows, config=config)
        return LoadedCheckpoint(model, tokenizer, config, (), directory)


def pooled(encoder: Any, mode: sentence.Mode, pooling: sentence.SentenceConfig) -> Any:
    """Wrap an encoder to return `embeddings`, `[batch, hidden]`, as sentence-transformers does.

    Only positions where `attention_mask` is 1 count; dense layers follow, then `normalize` scales each embedding to length 1.
    """
    import torch

    layers = torch.nn.Sequential(*(_layer(*dense) for dense in pooling.dense))

    def pool(hidden: Any, mask: Any) -> Any:
        if mode == "mean":
            counts = mask.unsqueeze(-1).to(hidden.dtype)
            return (hidden * counts).sum(1) / counts.sum(1).clamp(min=1e-9)
        if mode == "max":
            return hidden.masked_fill(mask.unsqueeze(-1) == 0, -1e9).amax(1)
        if mode == "cls":
            return hidden[:, 0]
        last = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(1)
        return hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[-1])).squeeze(1)

    def embed(**inputs: Any) -> Any:
        hidden = encoder(**inputs, return_dict=True).last_hidden_state
        embeddings = layers(pool(hidden, inputs["attention_mask"]))
        return torch.nn.functional.normalize(embeddings, p=2.0, dim=1) if pooling.normalize else embeddings

    return module_of(embed, encoder=encoder, layers=layers)


def _layer(file: Path, activation: str) -> Any:
    import torch
    from safetensors.torch import load_file

    weights = {name.removeprefix("linear."): tensor for name, tensor in load_file(file).items()}
    if not weights.keys() <= {"weight", "bias"} or weights.get("weight", torch.zeros(0)).ndim != 2:
        raise InputError(f"{file.parent.name}/{file.name} is not of a dense layer")
    width, before = weights["weight"].shape
    linear = torch.nn.Linear(before, width, bias="bias" in weights)
    linear.load_state_dict(weights)
    return torch.nn.Sequential(linear, getattr(torch.nn, activation)())
