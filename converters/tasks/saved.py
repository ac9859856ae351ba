"""Tasks of transformers checkpoints: `Saved` finds, loads and publishes them, a subclass makes the graphs' modules."""

import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxreg.converters.passes import conversion
from onnxreg.converters.passes.conversion import TorchModel
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime import golden
from onnxreg.converters.source.source_files import CONFIG, copy_scrubbed, read_license, role_of, scrub
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks import sentence
from onnxreg.converters.tasks.checkpoint import (
    TOKENIZER_FILE,
    LoadedCheckpoint,
    find_checkpoint,
    load_located,
)
from onnxreg.converters.tasks.heads import ENCODER
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Part, Task
from onnxreg.schema.core.errors import ConversionError
from onnxreg.schema.manifest.draft import Draft, DraftFile

LABELS = "id2label.json"
PLAIN_CLASS = "PreTrainedTokenizerFast"
"""The class that loads any tokenizer.json; transformers 4 and 5 both know this name."""
MAX_GOLDEN_VALUES = 2**19
"""The most values of inputs and outputs together in golden vectors of a graph without a mask: about 2.6 bytes each."""
# fmt: off
_LOCAL_KEYS = {
    "_attn_implementation", "_attn_implementation_internal", "_commit_hash", "attn_implementation", "backend", "cache_dir",
    "is_local", "local_files_only", "special_tokens_map_file", "tokenizer_file", "vocab_file",
}
# fmt: on
"""Keys whose values come from the machine that loaded a checkpoint, not from the checkpoint."""


@dataclass(frozen=True)
class Graphs:
    """The parts of a checkpoint by the names of their graphs ("" for a single graph), and what to publish about them.

    `inputs` names the inputs for a text, `length` is its most tokens. `settings` are further keys of `config.json`, `fields`
    of the manifest, `resolved` further effective options, `files` further companions. For `proof` see `ExportSubject`.
    """

    parts: Mapping[str, Part]
    inputs: Sequence[str] = ()
    length: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    resolved: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[DraftFile, ...] = ()
    proof: Callable[[Draft], Draft] | None = None


class Saved(Task):
    """Task of checkpoints with one head; `Task.of` makes the class for a head."""

    def find(self, source: str) -> LocatedSource:
        return find_checkpoint(source, self.head, self.trust_remote_code)

    def checkpoint(self, source: LocatedSource, name: str) -> LoadedCheckpoint:
        return load_located(source, name, self.head, self.trust_remote_code)

    @abstractmethod
    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        """Make the modules and their samples; write further companions into `directory`."""

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        require("torch", "transformers")
        checkpoint = self.checkpoint(source, name)
        graphs = self.graphs(checkpoint, directory)
        files, scrubbed = write_companions(directory, checkpoint, name, graphs)
        beside: Iterable[str] = (path for path in self.head.beside if (source.location / path).is_file())
        if self.head is ENCODER:
            beside = sentence.sentence_files(source.location, all_modules=True)
        for path in beside:
            copy_scrubbed(source.location / path, directory / path, name, source.location)
            files.setdefault(path, "other" if "/" in path else role_of(path))
        fields = described(self.id, checkpoint.directory, checkpoint.config.model_type)
        fields |= {"config_path": CONFIG, **graphs.fields}
        resolved = {**graphs.resolved, **({"scrubbed": scrubbed} if scrubbed else {})}
        if source.adapter is not None:
            resolved["adapter"] = source.adapter.record
        if graphs.length is not None:
            fields["max_sequence_length"] = resolved["max_seq_length"] = graphs.length
        if checkpoint.tokenizer is not None:
            paths = [path for path, role in files.items() if role == "tokenizer"]
            fields["tokenizer"] = {"path": ".", "files": paths}
        if checkpoint.labels:
            fields |= {"labels": list(checkpoint.labels), "label_map_path": LABELS}
        companions = (*(DraftFile(role, path) for path, role in files.items()), *graphs.files)
        return ExportSubject(
            checkpoint.source, graphs.parts, companions, fields, resolved, checkpoint, proof=graphs.proof
        )


def described(task: str, directory: Path, family: object) -> dict[str, Any]:
    """Return the manifest keys of every checkpoint: the task, the family, and the licence if the model card states one."""
    fields = {"task": task, "family": family, "license": read_license(directory)}
    return {name: value for name, value in fields.items() if value is not None}


def part_of(
    module: Any,
    feeds: Sequence[Feed],
    axes: Mapping[str, Mapping[int, str]],
    outputs: Collection[str],
    case: str = "",
    example: int = 1,
) -> Part:
    """Make the part of a module, which runs on all feeds; an export starts with feed number `example`. `axes` are dynamic axes.

    An output with the axes of `attention_mask` has values per token. `case` names the golden vectors, which are made from the
    first feed, or from short rows if there is a mask; "" makes none.
    """
    import torch

    inputs = {name: torch.from_numpy(array) for name, array in feeds[example].items()}
    subject = TorchModel(module.eval(), inputs, tuple(outputs), axes)
    expected, mask = conversion.run(subject, feeds), axes.get("attention_mask")
    per_token = frozenset(name for name in outputs if mask and axes[name] == mask)
    cases: dict[str, Feed] = {}
    if case and "attention_mask" in feeds[0]:
        widths = (array[0, 0].size for name, array in expected[0].items() if name in per_token)
        cases = golden.feeds_of(feeds, max(widths, default=1))
    elif (
        case and sum(array.size for array in (*feeds[0].values(), *expected[0].values())) <= MAX_GOLDEN_VALUES
    ):
        cases = {case: feeds[0]}
    return Part(subject, feeds, expected, per_token, cases)


def module_of(forward: Callable[..., Any], **parts: Any) -> Any:
    """Make a torch module, in evaluation mode, that computes `forward` of its inputs; `parts` are its attributes by name."""
    import torch

    class Composed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, **inputs: Any) -> Any:
            return forward(**inputs)

    return Composed().eval()


def write_companions(
    directory: Path, checkpoint: LoadedCheckpoint, name: str, graphs: Graphs
) -> tuple[dict[str, str], list[str]]:
    """Write config, labels and tokenizer; return the files' roles, and the keys of `config.json` that named a local path.

    `name` is the published name, written as `_name_or_path`.
    """
    source, files = checkpoint.directory, {CONFIG: "config"}
    config = json.loads(checkpoint.config.to_json_string(use_diff=False))
    length = {} if graphs.length is None else {"max_sequence_length": graphs.length}
    config |= {"_name_or_path": name, **length, **graphs.settings}
    for key in ("id2label", "label2id"):
        config.pop(key, None)
    cleaned, replaced = scrub(_without_local_keys(config), name, source)
    if labels := {str(index): label for index, label in enumerate(checkpoint.labels)}:
        cleaned |= {"id2label": labels, "label2id": {label: int(index) for index, label in labels.items()}}
        _write(directory / LABELS, labels, sort_keys=False)
        files[LABELS] = "labels"
    _write(directory / CONFIG, cleaned)
    if checkpoint.tokenizer is not None:
        saved = {Path(path).name for path in checkpoint.tokenizer.save_pretrained(directory)}
        names = sorted(file for file in saved if (directory / file).is_file())
        if TOKENIZER_FILE not in names:
            raise ConversionError(f"transformers did not write a {TOKENIZER_FILE} for this tokenizer")
        files |= dict.fromkeys(names, "tokenizer")
        path = directory / "tokenizer_config.json"
        if path.is_file():
            cleaned, _ = scrub(_without_local_keys(json.loads(path.read_bytes())), name, source)
            if cleaned.get("tokenizer_class") == "TokenizersBackend":
                cleaned["tokenizer_class"] = PLAIN_CLASS
            _write(path, {**cleaned, "model_input_names": list(graphs.inputs)})
        template = directory / "chat_template.jinja"
        if template.is_file():
            copy_scrubbed(template, template, name, source)
    return files, [f"{CONFIG}:{key}" for key in replaced]


def _without_local_keys(value: Any) -> Any:
    """Return a JSON value without `_LOCAL_KEYS` at any depth."""
    if isinstance(value, dict):
        return {key: _without_local_keys(child) for key, child in value.items() if key not in _LOCAL_KEYS}
    return [_without_local_keys(child) for child in value] if isinstance(value, list) else value


def _write(path: Path, value: Any, sort_keys: bool = True) -> None:
    text = json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
