"""Tasks of text checkpoints: `TextTask` for a head, `Pooling` for vectors of texts, `Towers` for texts and images."""

import inspect
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import PositiveInt

from onnxreg.converters.passes.base import PassParams
from onnxreg.converters.passes.conversion import module_of
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.tasks import sentences
from onnxreg.converters.tasks import task as kinds
from onnxreg.converters.tasks.checkpoint import (
    TOKENIZER_FILE,
    Graphs,
    LoadedCheckpoint,
    Saved,
    locate,
    located_source,
    part_of,
    read_config,
    require_processor,
    unloadable,
)
from onnxreg.converters.tasks.processed import Processor
from onnxreg.converters.tasks.task import SAVE_TOKENIZER, LocatedSource, TaskHead
from onnxreg.schema.core.errors import InputError

REQUIRED = ("input_ids", "attention_mask")
BOXES, PIXELS = "bbox", "pixel_values"
OTHER_INPUTS = (PIXELS, "input_features", "input_values")
MOST_BOX = 1000  # the width and height of a page, in the units of the input `bbox`
SEGMENT_WEIGHTS = ("seg_embed", "token_type_embeddings.weight", "token_type_embeddings_0.weight")
"""The names of weights of models that use token types, even if the config does not say it (XLNet)."""
LEAST_LOGIT = -88.7  # of a cell in another column than the answer, where TAPAS gives -10,000
ROW_LENGTHS = ((13,), (48, 31, 7))

SENTENCES = (
    "The patient was seen on 2024-03-18 by Dr. Maria Lindqvist and can be reached at +1 (555) 010-4477.",
    "Please send the invoice to 12 Harbour Street, Apt. 4B, Springfield, or to anna.keller@example.org.",
    "Le dossier n° 88-1204 a été transmis au médecin traitant; la prochaine visite est fixée au 7 mai.",
    "昨日、田中さんから電話がありました。住所は変わっていません。",
)
TEXT, WHOLE = "text", "model"
SOUND_FILES = {TEXT: "text_model.onnx", "audio": "audio_model.onnx", WHOLE: "model.onnx"}
WITH_MASK = ("clip", "clap")
"""The families whose model of texts reads a mask. In other families, texts are padded to the same length."""


def sample_feeds(
    tokenizer: Any, config: Any, inputs: Sequence[str], max_length: int, page: Processor | None = None
) -> list[Feed]:
    """Return three samples: a short row; three padded rows (the second a pair of texts); a row of `max_length` tokens.

    For a model of documents, `page` gives the images of pages.
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
        if sizes := getattr(config, "type_vocab_sizes", None):  # the types of TAPAS: each cell has two tokens
            rows, width = arrays["input_ids"].shape
            cells = np.maximum(np.arange(width) - width // 4, 0) // 2
            part, column, row = np.arange(width) >= width // 4, cells % 3 + 1, cells // 3
            types = np.stack([part, column, row, cells % 2, row, row.max() - row, cells % 8], axis=-1)
            types = np.minimum(types * part[:, None], np.array(sizes) - 1)
            arrays["token_type_ids"] = types * arrays["attention_mask"][..., None]
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
    """Return the names of the graph's inputs. `token_type_ids` is an input if tokenizer and model use it.

    A model of documents also takes the box of each token and, with some heads, an image of the page. Raises InputError
    if the model reads other inputs.
    """
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    names = inspect.signature(model.forward).parameters
    pages = [name for name in (BOXES, PIXELS) if BOXES in names and name in names]
    if PIXELS in pages and task not in (kinds.PAGES, kinds.TOKENS, kinds.TEXTS):
        pages = []
    if others := [name for name in OTHER_INPUTS if name in names and name not in pages]:
        message = f"{type(model).__name__} reads {', '.join(others)}, and the task gives texts alone"
        raise InputError(message, kinds.OPTIMUM)
    if takes_types := "token_type_ids" in names:
        has_weights = any(name.endswith(SEGMENT_WEIGHTS) for name, _ in model.named_parameters())
        takes_types = (getattr(model.config, "type_vocab_size", None) or 1 + has_weights) > 1
    if takes_types and tokenizer is not None:
        encode = tokenizer.backend_tokenizer.encode
        takes_types = any(encode("a").type_ids + encode("a", "a").type_ids)
        takes_types &= "token_type_ids" in tokenizer.init_kwargs.get("model_input_names", names)
    return (*REQUIRED, *(["token_type_ids"] if takes_types else []), *pages)


def longest(max_length: int, model: Any) -> int:
    limit = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        return max_length
    for path, module in model.named_modules():
        padding = getattr(module, "padding_idx", None) if path.endswith("position_embeddings") else None
        if padding is not None:  # positions in models like RoBERTa begin after it
            return min(max_length, limit - int(padding) - 1)
    return min(max_length, limit)


class TextOptions(PassParams, title="Options"):
    """`max_seq_length` is the maximum length of a text in tokens. If the model has a lower limit, that limit counts."""

    max_seq_length: PositiveInt = 512


class TextTask(Saved):
    """The task of text checkpoints: encoders, and models with a head.

    The graph takes `input_ids`, `attention_mask` and maybe `token_type_ids`, int64 `[batch, sequence]`, and returns the
    outputs of its `TaskHead`, in float32.
    """

    exporter = "OnnxConversion"
    Options = TextOptions

    def further_files(self, directory: Path) -> tuple[list[str], list[str]]:
        return [], sentences.files_of(directory, all_modules=True) if self.head is kinds.ENCODER else []

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        model = module = checkpoint.model
        if self.head is kinds.PAGES:  # LayoutLMv3 has scores for the parts of the image too, after the tokens

            def answer(**inputs: Any) -> Any:
                result, count = model(**inputs, return_dict=True), inputs["input_ids"].shape[1]
                return {name: result[name][:, :count] for name in self.head.outputs}

            module = module_of(answer, model=model)
        return self.graph(checkpoint, module, int(self.options.max_seq_length))

    def graph(self, checkpoint: LoadedCheckpoint, module: Any, length: int, without: str = "") -> Graphs:
        """Make the graph of a module, without the output called `without`. Texts have at most `length` tokens."""
        length, page = longest(length, checkpoint.model), None
        inputs = input_names(checkpoint, self.head)
        if PIXELS in inputs:
            require_processor(checkpoint.directory, "image")
            page = Processor(checkpoint.directory, "image", self.trust_remote_code)
        feeds = sample_feeds(checkpoint.tokenizer, checkpoint.config, inputs, length, page)
        outputs = {name: axes for name, axes in self.head.outputs.items() if name != without}
        axis_names = {**dict.fromkeys(inputs, kinds.PER_TOKEN), **outputs}
        axis_names |= {PIXELS: kinds.PER_ROW} if page else {}
        axes = {name: dict(enumerate(names)) for name, names in axis_names.items()}
        part = part_of(module, feeds, axes, outputs, has_golden=True)
        return Graphs({"": part}, inputs, length)


class Tables(TextTask):
    """The task of TAPAS, which chooses cells of a table for a question, and maybe how to aggregate them.

    `token_type_ids` is `[batch, sequence, 7]`: segment, column, row, earlier answer, rank, inverse rank and relation.
    `logits` are at least `LEAST_LOGIT`, as in TapasTokenizer.
    """

    exporter = "TransformersExport"
    has_tokens = False  # TapasTokenizer has no fast form

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        model = checkpoint.model
        without = "" if model.config.num_aggregation_labels else "logits_aggregation"

        def answer(**inputs: Any) -> Any:
            result = model(**inputs, return_dict=True)
            return {**result, "logits": result.logits.clamp(min=LEAST_LOGIT)}

        module, length = module_of(answer, model=model), int(self.options.max_seq_length)
        return self.graph(checkpoint, module, length, without)


class Speech(TextTask):
    """The task of VITS, which speaks a text. The outputs are `waveform` (`[batch, samples]`) and `sequence_lengths`.

    The graph has no noise, so a text always sounds the same. The weights that decide durations stay floats.
    """

    quantizer = "WeightQuantization"
    products = ("MatMul", "Gemm", "Conv", "ConvTranspose")

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        import torch
        from torch.nn.utils import parametrize

        model = checkpoint.model
        if model.config.num_speakers > 1:
            message = f"the model has {model.config.num_speakers} speakers, and the graph takes no speaker"
            raise InputError(message, kinds.OPTIMUM)
        for module in [one for one in model.modules() if parametrize.is_parametrized(one, "weight")]:
            parametrize.remove_parametrizations(module, "weight")
        zeros: dict[Any, Any] = {torch.randn: torch.zeros, torch.randn_like: torch.zeros_like}

        class Noiseless(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function: Any, types: Any, args: Any = (), named: Any = None) -> Any:
                return zeros.get(function, function)(*args, **(named or {}))

        def speak(**inputs: Any) -> Any:
            with Noiseless():
                return model(**inputs, return_dict=True)

        noise = {"noise_scale": 0.0, "noise_scale_duration": 0.0}
        module = module_of(speak, model=model)
        graphs = self.graph(checkpoint, module, int(self.options.max_seq_length))
        return replace(graphs, settings=noise, resolved=noise)


class PoolingOptions(TextOptions, title="Options"):
    """`mode` and `normalize` replace the checkpoint's settings. A checkpoint without settings has the mode `mean`."""

    mode: sentences.Mode | None = None
    normalize: bool | None = None


class Pooling(TextTask):
    """The task of encoders with pooling. The output `embeddings`, `[batch, hidden]`, has a vector for each text."""

    Options = PoolingOptions
    patterns = sentences.PATTERNS

    def further_files(self, directory: Path) -> tuple[list[str], list[str]]:
        return sentences.files_of(directory), []

    def find(self, source: str) -> LocatedSource:
        located = super().find(source)
        self.pooling(located.location)
        return located

    def pooling(self, directory: Path) -> sentences.SentenceConfig:
        """Return the checkpoint's settings, changed by the options. With the option `mode`, only the options count."""
        config = sentences.SentenceConfig() if self.options.mode else sentences.read_pooling(directory)
        options = {name: value for name, value in self.options if value is not None and hasattr(config, name)}
        return replace(config, **options)

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        pooling, tokenizer = self.pooling(checkpoint.directory), checkpoint.tokenizer
        if pooling.lower_case and tokenizer is not None:
            from tokenizers import normalizers

            backend = tokenizer.backend_tokenizer
            own = filter(None, [backend.normalizer])
            backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
        length = int(self.options.max_seq_length)
        length = min(length, pooling.max_length or getattr(tokenizer, "model_max_length", length))
        graphs = self.graph(checkpoint, sentences.pooling_module(checkpoint.model, pooling), length)
        recorded: dict[str, Any] = {"mode": pooling.mode, "normalize": pooling.normalize}
        if pooling.default_prompt and (prompt := pooling.prompts[pooling.default_prompt]):
            recorded["prompt"] = prompt
        prompts = {"prompts": dict(pooling.prompts), "default_prompt_name": pooling.default_prompt}
        return replace(graphs, settings=prompts if pooling.prompts else {}, resolved={"pooling": recorded})


class StaticPooling(Pooling):
    """The task of static embeddings: a text's vector is the mean of its tokens' rows in a table."""

    quantizer = "EmbeddingQuantization"
    products = ()

    def find(self, source: str) -> LocatedSource:
        location = locate(source, more=sentences.PATTERNS)
        directory, folder = location.directory, sentences.table_of(location.directory) or ""
        self.pooling(directory)
        names = [Path(folder, name).as_posix() for name in (sentences.WEIGHTS_FILE, TOKENIZER_FILE)]
        if missing := [name for name in names if not (directory / name).is_file()]:
            message = f"the static embedding has no {missing[0]}"
            raise InputError(message, "save it with sentence-transformers")
        return located_source(location, [*names, *sentences.files_of(directory)])

    def checkpoint(self, source: LocatedSource) -> LoadedCheckpoint:
        import torch
        from safetensors.torch import load_file
        from transformers import PreTrainedConfig, PreTrainedTokenizerFast

        directory: Path = source.location
        folder = directory / (sentences.table_of(directory) or "")
        try:
            (key, table), *others = load_file(folder / sentences.WEIGHTS_FILE).items()
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / TOKENIZER_FILE))
        except Exception as error:
            raise unloadable("the static embedding", directory, error) from error
        if others or table.ndim != 2:
            message = f"{sentences.WEIGHTS_FILE} of the static embedding has more than a table: {key[:80]}"
            raise InputError(message, "save it with sentence-transformers")
        backend = tokenizer.backend_tokenizer
        backend.no_padding()
        backend.no_truncation()
        backend.post_processor = None
        if max(tokenizer.get_vocab().values(), default=-1) >= len(table):
            message = f"the tokenizer has more tokens than the table of {len(table)} rows"
            raise InputError(message, "give the tokenizer that it was trained with")

        kind = type("StaticConfig", (PreTrainedConfig,), {"model_type": "static-embedding"})
        config = kind(architectures=[sentences.STATIC], hidden_size=table.shape[1])
        rows = torch.nn.Embedding(len(table), table.shape[1], _weight=table.float())
        model = module_of(
            lambda input_ids, **_: SimpleNamespace(last_hidden_state=rows(input_ids)),
            rows=rows,
            config=config,
        )
        return LoadedCheckpoint(model, tokenizer, config, (), directory)


class Towers(Saved):
    """The task of models such as CLIP, which map texts and images (or sounds) to the same vector space.

    | member | file | inputs, to outputs |
    |---|---|---|
    | `text` | `text_model.onnx` | `input_ids` (and `attention_mask`), to a vector |
    | `vision`, `audio` | `vision_model.onnx`, `audio_model.onnx` | `pixel_values` or `input_features`, to a vector |
    | `model` | `model.onnx` | the inputs of both, to the logits of each pair, and to vectors of length 1 |

    Names are as in Transformers.js. For CLIP and SigLIP, the vectors of `text` and `vision` are not of length 1.
    """

    Options = TextOptions
    members = {TEXT: "text_model.onnx", "vision": "vision_model.onnx", WHOLE: "model.onnx"}

    def find(self, source: str) -> LocatedSource:
        located = super().find(source)
        if located.lacks_tokenizer:
            raise InputError("the checkpoint has no tokenizer, and the model reads texts", SAVE_TOKENIZER)
        audio = read_config(located.location).get("audio_config")
        if isinstance(audio, dict) and audio.get("enable_fusion"):
            message = "CLAP with fusion joins parts of a sound that its feature extractor chooses at random"
            raise InputError(message, "export one without fusion, such as laion/clap-htsat-unfused")
        return located

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        model, has_mask = checkpoint.model, checkpoint.config.model_type in WITH_MASK
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
        results = {f"logits_per_{sense}": {**columns, 1: rows[0]}, "logits_per_text": {**rows, 1: columns[0]}}
        results |= {text: rows, other: columns}
        parts = {
            TEXT: part_of(vectors(model.get_text_features), texts, axes, own[:1], True),
            [*self.members][1]: tower,
            WHOLE: part_of(model, pairs, {**both, **results}, results),
        }
        return Graphs(parts, inputs, length, fields=processor.contract())


class NamedObjects(Towers):
    """The task of detectors such as OWL-ViT, as one graph. Texts name objects: equally many for each image."""

    members = {}

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        import numpy as np

        model = checkpoint.model
        length = longest(int(self.options.max_seq_length), model.base_model.text_model)
        texts = _texts(checkpoint.tokenizer, checkpoint.config.text_config, length, True)
        for words in texts:  # a text that begins with 0 names nothing
            words["input_ids"][:, 0] = max(1, texts[0]["input_ids"][0, 0])
        processor = Processor(checkpoint.directory, self.head.modality, self.trust_remote_code)
        feeds = [
            {
                **{name: np.tile(array, (rows, 1)) for name, array in words.items()},
                PIXELS: np.concatenate(processor.rows[:rows]),
            }
            for words, rows in zip(texts, (1, 2, 1), strict=True)
        ]
        axes = {**{key: {0: "texts", 1: "sequence"} for key in REQUIRED}, PIXELS: {0: "batch"}}
        axes |= {"logits": {0: "batch", 2: "texts / batch"}, "pred_boxes": {0: "batch"}}
        part = part_of(model, feeds, axes, ("logits", "pred_boxes"), True)
        return Graphs({"": part}, REQUIRED, length, fields=processor.contract())


def vectors(features: Any) -> Any:
    """Return a module that computes vectors with `features`, a method of the model such as `get_text_features`."""
    return module_of(
        lambda **inputs: features(**inputs, return_dict=True).pooler_output, model=features.__self__
    )


def _texts(tokenizer: Any, config: Any, length: int, has_mask: bool) -> list[Any]:
    """Return samples of tokenized texts. Without a mask, all rows have the same length."""
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
