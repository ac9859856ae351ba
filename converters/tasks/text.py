"""Tasks of checkpoints that read tokens, one for each head; `pooling` is in a file of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import PositiveInt

from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.source.source_files import read_license
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks.checkpoints import companion_files, token_sample
from onnxreg.converters.tasks.checkpoints.checkpoint import LoadedCheckpoint, find_checkpoint, load_located
from onnxreg.converters.tasks.checkpoints.task_heads import (
    BATCH,
    ENCODER,
    SEQUENCE,
    SPANS,
    TEXTS,
    TOKENS,
    TaskHead,
)
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Task, TaskOptions
from onnxreg.schema.manifest.draft import DraftFile

CONFIG, LABELS = "config.json", "id2label.json"


class TextOptions(TaskOptions, title="Options"):
    """`max_seq_length` in tokens: no more than the model can take are published."""

    max_seq_length: PositiveInt = 512


class TextTask(Task):
    """A Hugging Face checkpoint with a head and a fast tokenizer.

    The graph takes `input_ids`, `attention_mask` and maybe `token_type_ids`, int64 `[batch, sequence]`: what
    the tokenizer makes and the model takes. It gives the outputs of the head, float32, and nothing else.
    """

    head: ClassVar[TaskHead]

    Options = TextOptions

    def find(self, source: str) -> LocatedSource:
        return find_checkpoint(source, self.head, self.trust_remote_code)

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        require("torch", "transformers")
        checkpoint = load_located(source, name, self.head, self.trust_remote_code)
        length = token_sample.longest(self.longest(checkpoint), checkpoint.model)
        feeds = token_sample.sample_feeds(checkpoint.tokenizer, token_sample.input_names(checkpoint), length)
        module = self.module(checkpoint, token_sample.tensors(feeds[1]))
        sample = token_sample.measure(module, feeds)
        files, scrubbed = _write_companions(checkpoint, name, length, directory)
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


def torch_model(module: Any, examples: dict[str, Any], outputs: Mapping[str, tuple[str, ...]]) -> TorchModel:
    """Wrap a module with the dynamic axes of its outputs; those of the inputs are batch and sequence."""
    axis_names = {**dict.fromkeys(examples, (BATCH, SEQUENCE)), **outputs}
    axes = {name: dict(enumerate(names)) for name, names in axis_names.items()}
    return TorchModel(module, examples, tuple(outputs), axes)


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


def _write_companions(
    checkpoint: LoadedCheckpoint, name: str, length: int, directory: Path
) -> tuple[list[DraftFile], list[str]]:
    """Write the companions; return them, and the names of scrubbed fields."""
    scrubbed = companion_files.write_config(directory / CONFIG, checkpoint, name, length, {})
    files = [DraftFile("config", CONFIG)]
    if checkpoint.labels:
        companion_files.write_labels(directory / LABELS, checkpoint.labels)
        files.append(DraftFile("labels", LABELS))
    tokenizer = companion_files.write_tokenizer(directory, checkpoint, name)
    files += [DraftFile("tokenizer", path) for path in tokenizer]
    return files, [f"{CONFIG}:{key}" for key in scrubbed]


def _fields(
    task: str, checkpoint: LoadedCheckpoint, length: int, files: list[DraftFile]
) -> dict[str, object]:
    fields = {
        "task": task,
        "family": checkpoint.config.model_type,
        "config_path": CONFIG,
        "max_sequence_length": length,
        "tokenizer": {"path": ".", "files": [file.path for file in files if file.role == "tokenizer"]},
    }
    if checkpoint.labels:
        fields |= {"labels": list(checkpoint.labels), "label_map_path": LABELS}
    license_name = read_license(checkpoint.directory)
    return fields if license_name is None else {**fields, "license": license_name}
