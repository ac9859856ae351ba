"""Tasks of checkpoints that read tokens, one for each head, and `text-generation`: a decoder, for `ModelBuilder`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import PositiveInt

from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.source.location import locate
from onnxreg.converters.source.source_files import CONFIG, read_license, taking_part
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks.checkpoints import sentence_files, token_sample
from onnxreg.converters.tasks.checkpoints.checkpoint import (
    BATCH,
    ENCODER,
    SAVE_TOKENIZER,
    SEQUENCE,
    SPANS,
    TEXTS,
    TOKENS,
    TaskHead,
    find_checkpoint,
    has_tokenizer,
    load_located,
    located_source,
    read_config,
    require_weights,
    task_of,
)
from onnxreg.converters.tasks.checkpoints.companion_files import LABELS, write_companions
from onnxreg.converters.tasks.checkpoints.sentence_files import Mode, SentenceConfig
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Sample, Task, TaskOptions
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import Source

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
    modules: ClassVar[bool] = False
    """True if all files of sentence-transformers become companions."""

    Options = TextOptions

    def find(self, source: str) -> LocatedSource:
        return find_checkpoint(source, self.head, self.trust_remote_code, modules=self.modules)

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

    def pooling(self, directory: Path) -> SentenceConfig | None:
        """Return how token vectors become one; None if they do not."""
        return None

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        require("torch", "transformers")
        import torch

        checkpoint = load_located(source, name, self.head, self.trust_remote_code)
        model, tokenizer = checkpoint.model, checkpoint.tokenizer
        module, outputs, length = model, self.head.outputs, int(self.options.max_seq_length)
        pooling, settings, resolved = self.pooling(checkpoint.directory), {}, dict[str, Any]()
        if pooling is not None:
            mode = pooling.mode or "mean"
            if pooling.lower_case and tokenizer is not None:
                _lower_case(tokenizer.backend_tokenizer)
            own = getattr(tokenizer, "model_max_length", length)
            length = min(length, pooling.max_length or own)
            module, outputs = pooled(model, mode, pooling.normalize), {"embeddings": (BATCH,)}
            prompt = {"prompt": pooling.prompt} if pooling.prompt else {}
            resolved["pooling"] = {"mode": mode, "normalize": pooling.normalize, **prompt}
            if pooling.prompts:
                settings = {"prompts": dict(pooling.prompts), "default_prompt_name": pooling.default_prompt}
        length = token_sample.longest(length, model)
        inputs = token_sample.input_names(checkpoint)
        feeds = token_sample.sample_feeds(tokenizer, checkpoint.config, inputs, length)

        axis_names = {**dict.fromkeys(inputs, (BATCH, SEQUENCE)), **outputs}
        axes = {name: dict(enumerate(names)) for name, names in axis_names.items()}
        examples = {name: torch.from_numpy(array) for name, array in feeds[1].items()}
        subject = TorchModel(module, examples, tuple(outputs), axes)
        sample = token_sample.measure(subject, feeds)

        files, scrubbed = write_companions(
            directory, checkpoint, name, length, inputs, settings, self.modules
        )
        fields: dict[str, object] = {
            "task": self.id,
            "family": checkpoint.config.model_type,
            "config_path": CONFIG,
            "max_sequence_length": length,
        }
        if tokenizer is not None:
            paths = [file.path for file in files if file.role == "tokenizer"]
            fields["tokenizer"] = {"path": ".", "files": paths}
        if checkpoint.labels:
            fields |= {"labels": list(checkpoint.labels), "label_map_path": LABELS}
        if (license_name := read_license(checkpoint.directory)) is not None:
            fields["license"] = license_name
        resolved_options = {
            "max_seq_length": length,
            **resolved,
            **({"scrubbed": scrubbed} if scrubbed else {}),
        }
        return ExportSubject(
            checkpoint.source, sample, subject, tuple(files), fields, resolved_options, checkpoint
        )


class FeatureExtraction(TextTask):
    """The encoder alone: `last_hidden_state`, `[batch, sequence, hidden]`.

    If sentence-transformers wrote the checkpoint, its other modules are companions, so that it loads the export.
    """

    id = "feature-extraction"
    head = ENCODER
    modules = True


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
        self.pooling(checkpoint_source.location)
        return checkpoint_source

    def pooling(self, directory: Path) -> SentenceConfig:
        """Return the checkpoint's configuration, overridden by the options."""
        mode, normalize = self.options.mode, self.options.normalize
        config = SentenceConfig() if mode else sentence_files.read(directory)
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
        config = read_config(directory)
        if task_of(config) != self.id:
            raise InputError(
                f"not a causal language model: config.json says {str(config.get('architectures'))[:200]}",
                "text-generation exports decoders such as LlamaForCausalLM",
            )
        require_weights(directory)
        names = taking_part(directory, code=False)
        names += [GENERATION_CONFIG] if (directory / GENERATION_CONFIG).is_file() else []
        return located_source(location, names)

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        origin = source.origin or Source.from_json({"id": name, "digest": str(source.digest)})
        fields = {"task": self.id, "family": read_config(source.location).get("model_type")}
        license_name = read_license(source.location)
        fields |= {} if license_name is None else {"license": license_name}
        return ExportSubject(origin, Sample((), ()), source.location, fields=fields)


def _has_tokenizer(source: LocatedSource) -> bool:
    return has_tokenizer(source.location / sentence_files.transformer_folder(source.location))


def pooled(encoder: Any, mode: Mode, normalize: bool) -> Any:
    """Wrap an encoder to return `embeddings`, `[batch, hidden]`, as sentence-transformers does.

    Only positions that `attention_mask` leaves in count. `mean` averages them, `max` takes each dimension,
    `cls` the first position, `last` the last one, also with padding at the left. `normalize` makes each embedding as
    long as 1.
    """
    import torch

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
