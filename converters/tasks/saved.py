"""Tasks of transformers checkpoints: `Saved` finds, loads and publishes them, a subclass makes the graphs' modules."""

import copy
import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnxreg.converters.passes import conversion
from onnxreg.converters.passes.conversion import TorchModel
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime import golden
from onnxreg.converters.runtime.sessions import silent_transformers
from onnxreg.converters.source.location import Location, locate
from onnxreg.converters.source.source_files import (
    CONFIG,
    PROCESSOR,
    TOKENIZER,
    below,
    copy_scrubbed,
    read_license,
    role_of,
    scrub,
    taking_part,
)
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks import adapter, sentence
from onnxreg.converters.tasks.checkpoint import (
    TOKENIZER_FILE,
    load_model,
    load_tokenizer,
    located_source,
    read_config,
    refuse_own_code,
    require_processor,
    require_weights,
)
from onnxreg.converters.tasks.heads import ENCODER, OPTIMUM, SEQ2SEQ, VECTORS, head_of, modality_of
from onnxreg.converters.tasks.task import Adapter, ExportSubject, LocatedSource, Part, Task
from onnxreg.schema.core.digest import directory_digest
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.manifest.draft import Draft, DraftFile

LABELS = "id2label.json"
PLAIN_CLASS = "PreTrainedTokenizerFast"
"""The class that loads any tokenizer.json; transformers 4 and 5 both know this name."""
MAX_GOLDEN_VALUES = 2**19
"""The most values of inputs, and of outputs, in golden vectors of a graph without a mask: about 2.6 bytes for each input."""
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
    of the manifest, `resolved` further effective options. For `proof` see `ExportSubject`.
    """

    parts: Mapping[str, Part]
    inputs: Sequence[str] = ()
    length: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    resolved: Mapping[str, Any] = field(default_factory=dict)
    proof: Callable[[Draft], Draft] | None = None


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A trained checkpoint in memory.

    `model` is a torch module on the CPU, in float32 and evaluation mode, with eager attention, without a cache of keys and
    values. `tokenizer` is a fast tokenizer that pads and truncates only on request, or None. `labels` are in the order
    of the logits, empty for a head without labels. `config` is the saved configuration.
    """

    model: Any
    tokenizer: Any
    config: Any
    labels: tuple[str, ...]
    directory: Path


class Saved(Task):
    """Task of checkpoints with one head; `Task.of` makes the class for a head."""

    def find(self, source: str) -> LocatedSource:
        """Find and hash a checkpoint with this head, or an adapter and its base model, as one source.

        The digest for `VECTORS` covers the pooling files of sentence-transformers; all files of that library accompany an
        `ENCODER`.

        Raises NotFoundError or RemoteError if the source cannot be read, InputError if the source is not a complete
        checkpoint of this kind, or needs code of its own that the user did not allow.
        """
        head, trusted = self.head, self.trust_remote_code
        patterns = sentence.PATTERNS if head in (VECTORS, ENCODER) else ()
        named = locate(source, trusted, (*patterns, *adapter.FILES))
        base = adapter.find_base(named.directory, lambda base: locate(base, trusted, patterns))
        location = base or named
        directory = location.directory
        config = read_config(directory)
        refuse_own_code(directory, trusted)
        architectures = config.get("architectures") or []
        if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
            raise InputError("architectures in config.json of the checkpoint is not a list of names")
        is_text = head.modality == "text" and head is not SEQ2SEQ
        if config.get("is_encoder_decoder") is True and is_text:
            message = (
                "an encoder-decoder takes the words so far as a second input, which this task does not have"
            )
            hint = "leave --task out; or save its encoder alone, and export that"
            raise InputError(message, hint)
        fitting = [name for name in architectures if name.endswith(head.suffix) and name != "StaticModel"]
        if architectures and not fitting:
            message = f"not {head.description}: config.json says {', '.join(architectures)[:200]}"
            hint = f"export {head.description} that was trained: a head that was not gives random numbers"
            if (other := head_of(config, modality_of(directory))) is not None:
                hint = other.way or f"export it with --task {other.task} in place of your --profile or --task"
            raise InputError(message, hint)
        require_weights(directory)
        if head.modality != "text":
            require_processor(directory, head.modality)
        elif head is SEQ2SEQ and any((directory / name).is_file() for name in PROCESSOR):
            message = (
                "the checkpoint reads images or sound (it has a processor), and the task gives texts alone"
            )
            raise InputError(message, OPTIMUM)
        names = taking_part(directory, trusted)
        names += sentence.sentence_files(directory) if head is VECTORS else []
        companions = sentence.sentence_files(directory, all_modules=True) if head is ENCODER else []
        lacks_tokenizer = head.has_tokens and not any((directory / name).is_file() for name in TOKENIZER)
        located = replace(located_source(location, names, companions), lacks_tokenizer=lacks_tokenizer)
        return located if base is None else _adapted(located, named)

    def checkpoint(self, source: LocatedSource) -> LoadedCheckpoint:
        """Load a located checkpoint.

        Raises InputError if weights are missing, the tokenizer has no fast form or a token without an embedding, or the
        labels are not distinct and numbered from 0.
        """
        directory, trusted, tokenizer = source.location, self.trust_remote_code, None
        model = load_model(directory, self.head, trusted)
        if source.adapter is not None:
            model = adapter.merged(model, source.adapter.directory)
        if self.head.has_tokens and not source.lacks_tokenizer:
            with silent_transformers():
                tokenizer = load_tokenizer(directory, trusted)
            reader = getattr(model, "text_model", model)  # of a model that reads images too
            rows = getattr(reader.get_input_embeddings(), "num_embeddings", None)
            highest = max(tokenizer.get_vocab().values(), default=-1)
            if rows is not None and highest >= rows:
                message = f"the tokenizer has tokens up to {highest}, but the model has embeddings for {rows}"
                hint = "give the tokenizer that it was trained with, or resize the embeddings and train them"
                raise InputError(message, hint)
        numbered = {
            int(key): str(label) for key, label in model.config.id2label.items() if self.head.labelled
        }
        labels = tuple(label for _, label in sorted(numbered.items()))
        if numbered.keys() != set(range(len(labels))):
            message = f"id2label of the checkpoint does not number its labels from 0 to {len(labels) - 1}"
            raise InputError(message)
        if len(set(labels)) != len(labels):
            raise InputError("id2label of the checkpoint gives one label to two ids")
        config = copy.deepcopy(model.config)
        model.config.use_cache = False
        return LoadedCheckpoint(model, tokenizer, config, labels, directory)

    @abstractmethod
    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        """Make the modules and their samples; write further companions into `directory`."""

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        require("torch", "transformers")
        checkpoint = self.checkpoint(source)
        graphs = self.graphs(checkpoint, directory)
        tokenizer, scrubbed = write_companions(directory, checkpoint, name, graphs)
        beside: Iterable[str] = (path for path in self.head.beside if (source.location / path).is_file())
        if self.head is ENCODER:
            beside = sentence.sentence_files(source.location, all_modules=True)
        for path in beside:
            copy_scrubbed(source.location / path, directory / path, name, source.location)
        paths = [path.relative_to(directory).as_posix() for path in below(directory) if path.is_file()]
        roles = {path: "other" if "/" in path else role_of(path) for path in paths}
        roles |= dict.fromkeys(tokenizer, "tokenizer")
        fields = described(self.id, checkpoint.directory, checkpoint.config.model_type)
        fields |= {"config_path": CONFIG, **graphs.fields}
        resolved = {**graphs.resolved, **({"scrubbed": scrubbed} if scrubbed else {})}
        if source.adapter is not None:
            resolved["adapter"] = source.adapter.record
        if graphs.length is not None:
            fields["max_sequence_length"] = resolved["max_seq_length"] = graphs.length
        if checkpoint.tokenizer is not None:
            paths = [path for path, role in roles.items() if role == "tokenizer"]
            fields["tokenizer"] = {"path": ".", "files": paths}
        if checkpoint.labels:
            fields |= {"labels": list(checkpoint.labels), "label_map_path": LABELS}
        companions = tuple(DraftFile(role, path) for path, role in roles.items())
        return ExportSubject(
            source.record(name), graphs.parts, companions, fields, resolved, checkpoint, proof=graphs.proof
        )


def _adapted(base: LocatedSource, location: Location) -> LocatedSource:
    """Describe an adapter and its base model as one source; the digest covers both."""
    if not (location.directory / adapter.WEIGHTS).is_file():
        raise InputError(f"the adapter has no {adapter.WEIGHTS}", "save it as safetensors, with peft")
    own = located_source(location, adapter.FILES)
    digest = directory_digest({"adapter": own.digest, "base": base.digest})
    files = None if own.files is None or base.files is None else (*own.files, *base.files)
    origin = None if own.origin is None else own.origin.model_copy(update={"digest": digest})
    record = {"digest": str(base.digest)} if base.origin is None else base.origin.to_json()
    part = Adapter(location.directory, {"digest": str(own.digest), "base": record})
    packages = ("peft",)
    return replace(base, digest=digest, origin=origin, files=files, packages=packages, adapter=part)


def described(task: str, directory: Path, family: object) -> dict[str, Any]:
    """Return the manifest keys of every checkpoint: the task, the family, and the licence if the model card states one."""
    fields = {"task": task, "family": family, "license": read_license(directory)}
    return {name: value for name, value in fields.items() if value is not None}


def part_of(
    module: Any,
    feeds: Sequence[Feed],
    axes: Mapping[str, Mapping[int, str]],
    outputs: Collection[str],
    has_golden: bool = False,
) -> Part:
    """Make the part of a module, which runs on all feeds; an export starts with a feed of several rows. `axes` are dynamic axes.

    An output with the axes of `attention_mask` has values per token. With `has_golden`, there are golden vectors: of short rows
    if there is a mask; else of the first row of the first feed, with drawn whole numbers in place of its floats.
    """
    import numpy as np
    import torch

    example = next((feed for feed in feeds if min(map(len, feed.values())) > 1), feeds[0])
    inputs = {name: torch.from_numpy(array) for name, array in example.items()}
    subject = TorchModel(module.eval(), inputs, tuple(outputs), axes)
    expected, mask = conversion.run(subject, feeds), axes.get("attention_mask")
    per_token = frozenset(name for name in outputs if mask and axes[name] == mask)
    cases: dict[str, Feed] = {}
    if has_golden and "attention_mask" in feeds[0]:
        widths = (array[0, 0].size for name, array in expected[0].items() if name in per_token)
        cases = golden.feeds_of(feeds, max(widths, default=1))
    elif has_golden and all(
        sum(a.size for a in one.values()) <= MAX_GOLDEN_VALUES for one in (feeds[0], expected[0])
    ):
        draw = np.random.default_rng(0).integers
        tiles = {
            name: draw(-1, 2, array[:1].shape).astype(array.dtype) if array.dtype.kind == "f" else array
            for name, array in feeds[0].items()
        }
        cases = {"tiles": tiles}
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
) -> tuple[list[str], list[str]]:
    """Write config, labels and tokenizer; return the tokenizer's files, and the keys of `config.json` that named a local path.

    `name` is the published name, written as `_name_or_path`.
    """
    source, files = checkpoint.directory, list[str]()
    config = json.loads(checkpoint.config.to_json_string(use_diff=False))
    length = {} if graphs.length is None else {"max_sequence_length": graphs.length}
    config |= {"_name_or_path": name, **length, **graphs.settings}
    for key in ("id2label", "label2id"):
        config.pop(key, None)
    cleaned, replaced = scrub(_without_local_keys(config), name, source)
    if labels := {str(index): label for index, label in enumerate(checkpoint.labels)}:
        cleaned |= {"id2label": labels, "label2id": {label: int(index) for index, label in labels.items()}}
        _write(directory / LABELS, labels, sort_keys=False)
    _write(directory / CONFIG, cleaned)
    if checkpoint.tokenizer is not None:
        saved = {Path(path).name for path in checkpoint.tokenizer.save_pretrained(directory)}
        files = sorted(file for file in saved if (directory / file).is_file())
        if TOKENIZER_FILE not in files:
            raise ConversionError(f"transformers did not write a {TOKENIZER_FILE} for this tokenizer")
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
