"""Tasks of checkpoints that read tokens, one for each head, and `text-generation`: a decoder, for `ModelBuilder`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import PositiveInt

from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.source.location import locate
from onnxreg.converters.source.scrub import read_json
from onnxreg.converters.source.source_files import CONFIG, read_license, taking_part, weight_files
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks.checkpoints import companion_files, sentence_files, token_sample
from onnxreg.converters.tasks.checkpoints.checkpoint import (
    BATCH,
    ENCODER,
    SAVE_TOKENIZER,
    SEQUENCE,
    SPANS,
    TEXTS,
    TOKENS,
    LoadedCheckpoint,
    TaskHead,
    find_checkpoint,
    has_tokenizer,
    load_located,
    located_source,
)
from onnxreg.converters.tasks.checkpoints.sentence_files import Mode, SentenceConfig
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Sample, Task, TaskOptions
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.draft import DraftFile
from onnxreg.schema.manifest.manifest import Source

LABELS = "id2label.json"
HEAD_SUFFIX = "ForCausalLM"
GENERATION_CONFIG = "generation_config.json"
"""Optional settings of text generation."""


class TextOptions(TaskOptions, title="Options"):
    """`max_seq_length` in tokens: no more than the model can take are published."""

    max_seq_length: PositiveInt = 512


class TextTask(Task):
    """A Hugging Face checkpoint with a head and a fast tokenizer.

    The graph takes `input_ids`, `attention_mask` and maybe `token_type_ids`, int64 `[batch, sequence]`: what
    the tokenizer makes and the model takes. It gives the outputs of the head, float32, and nothing else.
    """

    version = 2
    head: ClassVar[TaskHead]

    Options = TextOptions

    def find(self, source: str) -> LocatedSource:
        return find_checkpoint(source, self.head, self.trust_remote_code)

    def warnings(self, source: LocatedSource) -> Sequence[str]:
        if _has_tokenizer(source):
            return ()
        return ("the checkpoint has no tokenizer: the version can be run on tensors only",)

    def check_evaluation(self, source: LocatedSource) -> None:
        if not _has_tokenizer(source):
            raise InputError(
                "the checkpoint has no tokenizer, so the texts of an evaluation cannot be read",
                SAVE_TOKENIZER,
            )

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        require("torch", "transformers")
        checkpoint = self.checkpoint(source, name)
        length = token_sample.longest(self.longest(checkpoint), checkpoint.model)
        inputs = token_sample.input_names(checkpoint)
        if checkpoint.tokenizer is None:
            feeds = token_sample.random_feeds(checkpoint.config, inputs, length)
        else:
            feeds = token_sample.sample_feeds(checkpoint.tokenizer, inputs, length)
        module = self.module(checkpoint, token_sample.tensors(feeds[1]))
        sample = token_sample.measure(module, feeds)
        files, scrubbed = _write_companions(
            checkpoint, name, length, directory, inputs, self.settings(checkpoint)
        )
        files += self.companions(checkpoint, name, directory)
        fields = _fields(self.id, checkpoint, length, files)
        resolved_options = {
            "max_seq_length": length,
            **self.resolved_options(checkpoint),
            **({"scrubbed": scrubbed} if scrubbed else {}),
        }
        return ExportSubject(
            checkpoint.source, sample, module, tuple(files), fields, resolved_options, checkpoint
        )

    def checkpoint(self, source: LocatedSource, name: str) -> LoadedCheckpoint:
        """Load the checkpoint."""
        return load_located(source, name, self.head, self.trust_remote_code)

    def settings(self, checkpoint: LoadedCheckpoint) -> dict[str, Any]:
        """Return further keys of the published config.json."""
        return {}

    def longest(self, checkpoint: LoadedCheckpoint) -> int:
        """Return the requested length of the longest row, in tokens."""
        return int(self.options.max_seq_length)

    def module(self, checkpoint: LoadedCheckpoint, examples: dict[str, Any]) -> TorchModel:
        """Return the module to export."""
        return torch_model(checkpoint.model, examples, self.head.outputs)

    def companions(self, checkpoint: LoadedCheckpoint, name: str, directory: Path) -> list[DraftFile]:
        """Write further companions of the task into a directory."""
        return []

    def resolved_options(self, checkpoint: LoadedCheckpoint) -> dict[str, Any]:
        """Return further effective options, for the recipe."""
        return {}


class FeatureExtraction(TextTask):
    """The encoder alone: `last_hidden_state`, `[batch, sequence, hidden]`.

    If sentence-transformers wrote the checkpoint, its other modules are companions, so that it loads the export.
    """

    id = "feature-extraction"
    head = ENCODER

    def find(self, source: str) -> LocatedSource:
        return find_checkpoint(source, self.head, self.trust_remote_code, modules=True)

    def companions(self, checkpoint: LoadedCheckpoint, name: str, directory: Path) -> list[DraftFile]:
        paths = companion_files.write_sentence_files(directory, checkpoint, name)
        return [DraftFile("other", path) for path in paths]


class PoolingOptions(TextOptions, title="Options"):
    """`mode` and `normalize` in place of the checkpoint's own; a checkpoint that has none is pooled by `mean`."""

    mode: Mode | None = None
    normalize: bool | None = None


class Pooling(TextTask):
    """An encoder and the pooling of its token vectors: `embeddings`, `[batch, hidden]`."""

    id = "pooling"
    head = ENCODER

    Options = PoolingOptions

    def find(self, source: str) -> LocatedSource:
        checkpoint_source = find_checkpoint(source, self.head, self.trust_remote_code, sentences=True)
        if self.options.mode is None:
            sentence_files.read(checkpoint_source.location)
        return checkpoint_source

    def checkpoint(self, source: LocatedSource, name: str) -> LoadedCheckpoint:
        checkpoint = super().checkpoint(source, name)
        if self._config(checkpoint).lower_case and checkpoint.tokenizer is not None:
            _lower_case(checkpoint.tokenizer.backend_tokenizer)
        return checkpoint

    def longest(self, checkpoint: LoadedCheckpoint) -> int:
        own = getattr(checkpoint.tokenizer, "model_max_length", self.options.max_seq_length)
        return min(super().longest(checkpoint), self._config(checkpoint).max_length or own)

    def module(self, checkpoint: LoadedCheckpoint, examples: dict[str, Any]) -> TorchModel:
        config = self._config(checkpoint)
        module = pooled(checkpoint.model, config.mode or "mean", config.normalize)
        return torch_model(module, examples, {"embeddings": (BATCH,)})

    def settings(self, checkpoint: LoadedCheckpoint) -> dict[str, Any]:
        config = self._config(checkpoint)
        return (
            {"prompts": dict(config.prompts), "default_prompt_name": config.default_prompt}
            if config.prompts
            else {}
        )

    def resolved_options(self, checkpoint: LoadedCheckpoint) -> dict[str, Any]:
        config = self._config(checkpoint)
        prompt = {"prompt": config.prompt} if config.prompt else {}
        return {"pooling": {"mode": config.mode or "mean", "normalize": config.normalize, **prompt}}

    def _config(self, checkpoint: LoadedCheckpoint) -> SentenceConfig:
        """Return the checkpoint's configuration, overridden by the options."""
        options, mode, normalize = self.options, self.options.mode, self.options.normalize
        config = SentenceConfig() if options.mode else sentence_files.read(checkpoint.directory)
        return replace(
            config,
            mode=mode or config.mode,
            normalize=config.normalize if normalize is None else normalize,
        )


class QuestionAnswering(TextTask):
    """The beginning and end of an answer: `start_logits` and `end_logits`, `[batch, sequence]`."""

    id = "question-answering"
    head = SPANS


class TextClassification(TextTask):
    """A text or a pair of texts: `logits`, `[batch, labels]`."""

    id = "text-classification"
    head = TEXTS


class TokenClassification(TextTask):
    """A label for each token: `logits`, `[batch, sequence, labels]`."""

    id = "token-classification"
    head = TOKENS


class TextGeneration(Task):
    """A Hugging Face checkpoint of a causal language model, which `ModelBuilder` takes unchanged.

    Nothing is loaded here and no code of the checkpoint is run. The pass compares its graph with the
    checkpoint itself.
    """

    id = "text-generation"

    def find(self, source: str) -> LocatedSource:
        location = locate(source)
        directory = location.directory
        _check_decoder(directory)
        names = taking_part(directory, code=False)
        names += [GENERATION_CONFIG] if (directory / GENERATION_CONFIG).is_file() else []
        return located_source(location, names)

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        origin = source.origin or Source.from_json({"id": name, "digest": str(source.digest)})
        fields = {"task": self.id, "family": _read_config(source.location).get("model_type")}
        license_name = read_license(source.location)
        fields |= {} if license_name is None else {"license": license_name}
        return ExportSubject(origin, Sample((), ()), source.location, fields=fields)


def _has_tokenizer(source: LocatedSource) -> bool:
    return has_tokenizer(source.location / sentence_files.transformer_folder(source.location))


def torch_model(module: Any, examples: dict[str, Any], outputs: Mapping[str, tuple[str, ...]]) -> TorchModel:
    """Wrap a module with the dynamic axes of its outputs; those of the inputs are batch and sequence."""
    axis_names = {**dict.fromkeys(examples, (BATCH, SEQUENCE)), **outputs}
    axes = {name: dict(enumerate(names)) for name, names in axis_names.items()}
    return TorchModel(module, examples, tuple(outputs), axes)


def pooled(encoder: Any, mode: Mode, normalize: bool) -> Any:
    """Wrap an encoder to return `embeddings`, `[batch, hidden]`, as sentence-transformers does.

    Only positions that `attention_mask` leaves in count. `mean` averages them, `max` takes each dimension,
    `cls` the first position, `last` the last one. `normalize` makes each embedding as long as 1.
    """
    import torch

    pool = {"mean": _mean, "cls": _first, "max": _max, "last": _last}[mode]

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, **inputs: Any) -> Any:
            hidden = self.encoder(**inputs, return_dict=True).last_hidden_state
            embeddings = pool(hidden, inputs["attention_mask"])
            return torch.nn.functional.normalize(embeddings, p=2.0, dim=1) if normalize else embeddings

    return Pooled().eval()


def _lower_case(tokenizer: Any) -> None:
    """Put letters into lower case before everything else that a tokenizer does."""
    from tokenizers.normalizers import Lowercase, Sequence

    present = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = Sequence([Lowercase(), *present])


def _write_companions(
    checkpoint: LoadedCheckpoint,
    name: str,
    length: int,
    directory: Path,
    inputs: Sequence[str],
    settings: Mapping[str, Any],
) -> tuple[list[DraftFile], list[str]]:
    """Write the companions; return them, and the names of scrubbed fields."""
    scrubbed = companion_files.write_config(directory / CONFIG, checkpoint, name, length, settings)
    files = [DraftFile("config", CONFIG)]
    if checkpoint.labels:
        companion_files.write_labels(directory / LABELS, checkpoint.labels)
        files.append(DraftFile("labels", LABELS))
    if checkpoint.tokenizer is not None:
        tokenizer = companion_files.write_tokenizer(directory, checkpoint, name, inputs)
        files += [DraftFile("tokenizer", path) for path in tokenizer]
    return files, [f"{CONFIG}:{key}" for key in scrubbed]


def _fields(
    task: str, checkpoint: LoadedCheckpoint, length: int, files: list[DraftFile]
) -> dict[str, object]:
    fields: dict[str, object] = {
        "task": task,
        "family": checkpoint.config.model_type,
        "config_path": CONFIG,
        "max_sequence_length": length,
    }
    if tokenizer := [file.path for file in files if file.role == "tokenizer"]:
        fields["tokenizer"] = {"path": ".", "files": tokenizer}
    if checkpoint.labels:
        fields |= {"labels": list(checkpoint.labels), "label_map_path": LABELS}
    license_name = read_license(checkpoint.directory)
    return fields if license_name is None else {**fields, "license": license_name}


def _check_decoder(directory: Path) -> None:
    architectures = _read_config(directory).get("architectures") or []
    if not any(str(name).endswith(HEAD_SUFFIX) for name in architectures):
        names = ", ".join(map(str, architectures))[:200] or "nothing"
        raise InputError(
            f"not a causal language model: config.json says {names}",
            "text-generation exports decoders such as LlamaForCausalLM",
        )
    if not weight_files(directory):
        raise InputError(
            "the checkpoint has no weights: neither model.safetensors nor pytorch_model.bin",
            "give the directory that save_pretrained wrote",
        )


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    value = read_json(path) if path.is_file() else None
    if not isinstance(value, dict):
        raise InputError(
            "the checkpoint has no config.json that can be read",
            "give the directory that save_pretrained wrote",
        )
    return value


def _mean(hidden: Any, mask: Any) -> Any:
    counts = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * counts).sum(1) / counts.sum(1).clamp(min=1e-9)


def _first(hidden: Any, mask: Any) -> Any:
    return hidden[:, 0]


def _max(hidden: Any, mask: Any) -> Any:
    return hidden.masked_fill(mask.unsqueeze(-1) == 0, -1e9).amax(1)


def _last(hidden: Any, mask: Any) -> Any:
    """Take the last unmasked position, also with padding at the left."""
    import torch

    last = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(1)
    return hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[-1])).squeeze(1)
