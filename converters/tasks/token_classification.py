"""`token-classification`: a trained checkpoint that gives each token a label."""

from pathlib import Path

from pydantic import PositiveInt

from onnxreg.converters.modelcard import read_license
from onnxreg.converters.passes.torch_model import TorchModel
from onnxreg.converters.tasks import companions, token_sample
from onnxreg.converters.tasks.base import Found, Subject, Task, TaskOptions
from onnxreg.converters.tasks.checkpoint import LoadedCheckpoint, find_checkpoint, load_found
from onnxreg.converters.toolchain import require
from onnxreg.schema.draft import DraftFile

CONFIG, LABELS = "config.json", "id2label.json"


class TokenClassification(Task):
    """A Hugging Face checkpoint with a trained token-classification head; `logits` for each token."""

    id = "token-classification"

    class Options(TaskOptions):
        """`max_seq_length` in tokens: no more than the model can take are published."""

        max_seq_length: PositiveInt = 512

    def find(self, source: str) -> Found:
        return find_checkpoint(source, self.trust_remote_code)

    def load(self, found: Found, name: str, directory: Path) -> Subject:
        require("torch", "transformers")
        checkpoint = load_found(found, name, self.trust_remote_code)
        length = token_sample.longest(self.options.max_seq_length, checkpoint.model)
        feeds = token_sample.sample_feeds(checkpoint.tokenizer, token_sample.input_names(checkpoint), length)
        module = TorchModel(checkpoint.model, token_sample.tensors(feeds[1]))
        sample = token_sample.measure(module, feeds, len(checkpoint.labels))
        scrubbed = companions.write_config(directory / CONFIG, checkpoint, name, length, {})
        companions.write_labels(directory / LABELS, checkpoint.labels)
        tokenizer = companions.write_tokenizer(directory, checkpoint, name)
        files = [DraftFile("config", CONFIG), DraftFile("labels", LABELS)]
        files += [DraftFile("tokenizer", path) for path in tokenizer]
        got = {
            "max_seq_length": length,
            **({"scrubbed": [f"{CONFIG}:{key}" for key in scrubbed]} if scrubbed else {}),
        }
        fields = _fields(checkpoint, length, tokenizer)
        return Subject(checkpoint.source, sample, module, tuple(files), fields, got, checkpoint)


def _fields(checkpoint: LoadedCheckpoint, length: int, tokenizer: list[str]) -> dict[str, object]:
    fields = {
        "task": TokenClassification.id,
        "family": checkpoint.config.model_type,
        "labels": list(checkpoint.labels),
        "config_path": CONFIG,
        "label_map_path": LABELS,
        "max_sequence_length": length,
        "tokenizer": {"path": ".", "files": tokenizer},
    }
    license_name = read_license(checkpoint.directory)
    return fields if license_name is None else {**fields, "license": license_name}
