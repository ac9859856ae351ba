"""Transformers checkpoints as sources. `Saved` finds and loads them; its subclasses make the modules of the graphs."""

import copy
import json
import math
import re
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from onnxreg.converters.passes import conversion
from onnxreg.converters.passes.conversion import TorchModel
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime import golden
from onnxreg.converters.runtime.sessions import no_collection, one_torch_thread, silent_transformers
from onnxreg.converters.source import source_files
from onnxreg.converters.source.hub import fetch
from onnxreg.converters.source.source_files import CONFIG, GENERATION_CONFIG, PROCESSOR, TOKENIZER, WEIGHTS
from onnxreg.converters.source.toolchain import refuse_missing, require, require_memory
from onnxreg.converters.tasks import task as kinds
from onnxreg.converters.tasks.task import SAVE_TOKENIZER, Adapter, ExportSubject, LocatedSource, Part, Task
from onnxreg.schema.core.canonical import directory_digest
from onnxreg.schema.core.errors import InputError, NotFoundError, RemoteError, listing, why
from onnxreg.schema.manifest.draft import Draft, DraftFile
from onnxreg.schema.manifest.manifest import Source

TOKENIZER_FILE = "tokenizer.json"
ADAPTER_FILES = ADAPTER_CONFIG, ADAPTER_WEIGHTS = ("adapter_config.json", "adapter_model.safetensors")
SAVED = "give the directory that save_pretrained wrote"
SAVE_TIMM = "save the model again: timm.models.save_for_hf(model, DIRECTORY)"
TRIAL_TEXTS = (
    "The patient was SEEN on 2024-03-18 by Dr. Maria O'Neill-Lindqvist (ward_7B), and can't walk.",
    "Le dossier n\u00b0 88\u20111204 na\u00efve \u00dcBER \u0130stanbul stra\u00dfe cafe\u0301 \ufb01ve \u2460 \uff26\uff35\uff2c\uff2c.",
    "  Two  spaces,\ta tab,\na line; \u6628\u65e5\u3001\u7530\u4e2d\u3055\u3093 \uc548\ub155 \u0645\u0631\u062d\u0628\u0627 \U0001f600 1234567 <x>@a.org \u200b\u00ad\u00a0x ",
)
"""The texts by which tokenizers are compared: accents, spaces, scripts, characters with several forms in Unicode."""

NOT_TRAINED = re.compile(
    r"(^|\.)(pooler\..*|cls\.seq_relationship\..*|position_ids|token_type_ids|(\w+_)?inv_freq|masked_bias|attn\.bias|num_batches_tracked"
    r"|(cos|sin)_cached|relative_position_index)$"
)
"""The weights that a file may have and a model may lack, such as weights of unused heads."""

ONLY_FOR_TRAINING = re.compile(r"(^|\.)(masked_spec_embed|mask_token)$")
"""The names of weights that a checkpoint may lack, because only training uses them."""

COUNTS = {
    re.compile("(layers?|depths?|blocks|stages|experts|groups?|group_num)$"): 1_000,
    re.compile("num_labels"): 10**6,
}
"""The keys of config.json that count parts of a model, with the highest allowed count."""
MAX_EDGE = 4096  # the maximum width and height of an image for a model of timm, in pixels
PARAMETER_BYTES = 12
LABELS = "id2label.json"
MAX_GOLDEN_VALUES = 2**19
"""The most values that inputs or outputs of golden vectors may have, for a graph without a mask."""
_LOCAL_KEYS = {
    "_attn_implementation", "_attn_implementation_internal", "_commit_hash", "attn_implementation", "backend", "cache_dir",
    "is_local", "local_files_only", "special_tokens_map_file", "tokenizer_file", "vocab_file",
}  # fmt: skip
"""The keys of a checkpoint's settings whose values come from the machine that loads it."""


@dataclass(frozen=True)
class Graphs:
    """The parts of a checkpoint by name ("" for a single part), and what to publish about them.

    `inputs` are the inputs that a tokenizer makes from a text. The text has at most `length` tokens.
    `settings` are added to config.json, `fields` to the `ExportSubject`, and `resolved` to its `resolved_options`.
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
    """A trained checkpoint in memory: a torch module in float32 and evaluation mode, with eager attention.

    `tokenizer` is a fast tokenizer or None. `labels` are in the order of the logits, and may be empty.
    """

    model: Any
    tokenizer: Any
    config: Any
    labels: tuple[str, ...]
    directory: Path


class Saved(Task):
    """The base of tasks of transformers checkpoints. `Task.of` makes a class for each `TaskHead`."""

    exporter = "TransformersExport"
    has_tokens: ClassVar[bool] = True
    runs_code: ClassVar[bool] = True
    patterns: ClassVar[tuple[str, ...]] = ()

    def further_files(self, directory: Path) -> tuple[list[str], list[str]]:
        """Return the names of two kinds of files: files that affect the graphs, and files that are only published."""
        return [], []

    def find(self, source: str) -> LocatedSource:
        """Find and hash a checkpoint with this head, or an adapter with its base model.

        Raises NotFoundError or RemoteError if the source cannot be read, InputError if the checkpoint is not complete,
        has another head, or needs code that the user did not allow.
        """
        head, trusted = self.head, self.trust_remote_code
        named = locate(source, trusted, (*self.patterns, *ADAPTER_FILES))
        base = find_base(named.directory, lambda base: locate(base, trusted, self.patterns))
        location = base or named
        directory = location.directory
        config = read_config(directory)
        if self.runs_code:
            refuse_own_code(directory, trusted)
        architectures = config.get("architectures") or []
        if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
            raise InputError("architectures in config.json of the checkpoint is not a list of names")
        is_text = head.modality == "text" and head is not kinds.SEQ2SEQ
        if config.get("is_encoder_decoder") is True and is_text:
            message = "an encoder-decoder takes the words so far as a second input, which this task lacks"
            hint = "leave --task out; or save its encoder alone, and export that"
            raise InputError(message, hint)
        fitting = [name for name in architectures if name.endswith(head.suffix) and name != "StaticModel"]
        if architectures and not fitting:
            message = f"not {head.description}: config.json says {', '.join(architectures)[:200]}"
            hint = f"export {head.description} that was trained: a head that was not gives random numbers"
            if (other := kinds.head_of(config, kinds.modality_of(directory))) is not None:
                hint = other.way or f"export it with --task {other.task} in place of your --profile or --task"
            raise InputError(message, hint)
        if not source_files.weight_files(directory):
            hint = "its graphs are exported already: reg import" if any(directory.glob("*.onnx")) else SAVED
            raise InputError(f"the checkpoint has no weights: neither {' nor '.join(WEIGHTS)}", hint)
        packages = ("timm",) if is_timm(config) else ()
        if packages:
            refuse_timm(config)
        elif head.modality != "text":
            require_processor(directory, head.modality)
        elif head is kinds.SEQ2SEQ and any((directory / name).is_file() for name in PROCESSOR):
            message = "the checkpoint reads images or sound (it has a processor), the task gives texts alone"
            raise InputError(message, kinds.OPTIMUM)
        shaping, copied = self.further_files(directory)
        located = located_source(location, [*source_files.input_files(directory, trusted), *shaping], copied)
        lacks_tokenizer = self.has_tokens and not any((directory / name).is_file() for name in TOKENIZER)
        located = replace(located, lacks_tokenizer=lacks_tokenizer, packages=packages)
        return located if base is None else _adapted(located, named)

    def checkpoint(self, source: LocatedSource) -> LoadedCheckpoint:
        """Load a checkpoint. Raise the errors of `load_model` and `load_tokenizer`, and InputError for wrong labels."""
        directory, trusted, tokenizer = source.location, self.trust_remote_code, None
        model = load_model(directory, self.head, trusted)
        if source.adapter is not None:
            model = merge_adapter(model, source.adapter.directory)
        if self.has_tokens and not source.lacks_tokenizer:
            with silent_transformers():
                tokenizer = load_tokenizer(directory, trusted)
            rows = getattr(model.config.get_text_config(), "vocab_size", None)
            highest = max(tokenizer.get_vocab().values(), default=-1)
            if rows is not None and highest >= rows:
                message = f"the tokenizer has tokens up to {highest}, but the model has embeddings for {rows}"
                hint = "give the tokenizer that it was trained with, or resize the embeddings and train them"
                raise InputError(message, hint)
        names = model.config.id2label if self.head.labelled else {}
        numbered = {int(key): str(label) for key, label in names.items()}
        labels = tuple(label for _, label in sorted(numbered.items()))
        if numbered.keys() != set(range(len(labels))):
            message = f"id2label of the checkpoint does not number its labels from 0 to {len(labels) - 1}"
            raise InputError(message)
        if self.head.modality == "image":  # ImageNet has two classes called crane
            twice = {label for label, count in Counter(labels).items() if count > 1}
            labels = tuple(f"{one} ({at})" if one in twice else one for at, one in enumerate(labels))
        if len(set(labels)) != len(labels):
            raise InputError("id2label of the checkpoint gives one label to two ids")
        config = copy.deepcopy(model.config)
        model.config.use_cache = False
        return LoadedCheckpoint(model, tokenizer, config, labels, directory)

    @abstractmethod
    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        """Make the parts of a loaded checkpoint. Further files to publish are written into `directory`."""

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        require("torch", "transformers")
        checkpoint = self.checkpoint(source)
        with one_torch_thread():
            graphs = self.graphs(checkpoint, directory)
        tokenizer, scrubbed = write_companions(directory, checkpoint, name, graphs)
        copies = [path for path in self.head.copies if (source.location / path).is_file()]
        for path in (*copies, *self.further_files(source.location)[1]):
            source_files.copy_scrubbed(source.location / path, directory / path, name, source.location)
        paths = [path.relative_to(directory).as_posix() for path in source_files.below(directory)]
        roles = {path: "other" if "/" in path else source_files.role_of(path) for path in paths}
        roles |= dict.fromkeys(tokenizer, "tokenizer")
        fields = described(self.id, checkpoint.directory, checkpoint.config.model_type)
        resolved = {**graphs.resolved, **({"scrubbed": scrubbed} if scrubbed else {})}
        if source.adapter is not None:
            resolved["adapter"] = source.adapter.record
            fields |= described(self.id, source.adapter.directory, checkpoint.config.model_type)
        fields |= {"config_path": CONFIG, **graphs.fields}
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


def _adapted(base: LocatedSource, location: source_files.Location) -> LocatedSource:
    if not (location.directory / ADAPTER_WEIGHTS).is_file():
        raise InputError(f"the adapter has no {ADAPTER_WEIGHTS}", "save it as safetensors, with peft")
    own = located_source(location, ADAPTER_FILES)
    digest = directory_digest({"adapter": own.digest, "base": base.digest})
    files = None if own.files is None or base.files is None else (*own.files, *base.files)
    origin = None if own.origin is None else own.origin.model_copy(update={"digest": digest})
    record = {"digest": str(base.digest)} if base.origin is None else base.origin.to_json()
    part = Adapter(location.directory, {"digest": str(own.digest), "base": record})
    cards = directory_digest({"adapter": own.described or own.digest, "base": base.described or base.digest})
    base = replace(base, packages=("peft",), adapter=part)
    return replace(base, digest=digest, origin=origin, described=cards, files=files)


def described(task: str, directory: Path, family: object) -> dict[str, Any]:
    fields = {"task": task, "family": family, "license": source_files.read_metadata(directory).get("license")}
    return {name: value for name, value in fields.items() if isinstance(value, str)}


def part_of(
    module: Any,
    feeds: Sequence[Feed],
    axes: Mapping[str, Mapping[int, str]],
    outputs: Collection[str],
    has_golden: bool = False,
) -> Part:
    """Run a module on all feeds and make its `Part`. `axes` names dynamic axes; `has_golden` adds golden inputs."""
    import numpy as np
    import torch

    example = next((feed for feed in feeds if min(map(len, feed.values())) > 1), feeds[0])
    inputs = {name: torch.from_numpy(array) for name, array in example.items()}
    subject = TorchModel(module.eval(), inputs, tuple(outputs), axes)
    expected, mask = conversion.run(subject, feeds), axes.get("attention_mask")
    per_token = frozenset(name for name in outputs if mask and axes[name] == mask)
    per_length = [name for name in outputs if 1 in axes.get(name, ())]
    cases: dict[str, Feed] = {}
    if has_golden and "attention_mask" in feeds[0] and all(a.dtype.kind == "i" for a in feeds[0].values()):
        count = feeds[0]["attention_mask"][0].size
        widths = (expected[0][name][0].size // count for name in per_length)
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


def write_companions(
    directory: Path, checkpoint: LoadedCheckpoint, name: str, graphs: Graphs
) -> tuple[list[str], list[str]]:
    """Write the config, the labels and the tokenizer, without paths of this machine.

    Returns the names of the tokenizer's files, and the keys of the config from which a path was removed.
    """
    source, files = checkpoint.directory, list[str]()
    config = json.loads(checkpoint.config.to_json_string(use_diff=False))
    length = {} if graphs.length is None else {"max_sequence_length": graphs.length}
    config |= {"_name_or_path": name, **length, **graphs.settings}
    for key in ("id2label", "label2id"):
        config.pop(key, None)
    cleaned, replaced = source_files.scrub(_without_local_keys(config), name, source)
    if labels := {str(index): label for index, label in enumerate(checkpoint.labels)}:
        cleaned |= {"id2label": labels, "label2id": {label: int(index) for index, label in labels.items()}}
        _write(directory / LABELS, labels, sort_keys=False)
    _write(directory / CONFIG, cleaned)
    if checkpoint.tokenizer is not None:
        saved = {Path(path).name for path in checkpoint.tokenizer.save_pretrained(directory)}
        files = sorted(file for file in saved if (directory / file).is_file())
        path = directory / "tokenizer_config.json"
        cleaned, _ = source_files.scrub(_without_local_keys(json.loads(path.read_bytes())), name, source)
        if cleaned.get("tokenizer_class") == "TokenizersBackend":
            cleaned["tokenizer_class"] = "PreTrainedTokenizerFast"  # which transformers 4 knows too
        _write(path, {**cleaned, "model_input_names": list(graphs.inputs)})
        template = directory / "chat_template.jinja"
        if template.is_file():
            source_files.copy_scrubbed(template, template, name, source)
    return files, [f"{CONFIG}:{key}" for key in replaced]


def _without_local_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_local_keys(child) for key, child in value.items() if key not in _LOCAL_KEYS}
    return [_without_local_keys(child) for child in value] if isinstance(value, list) else value


def _write(path: Path, value: Any, sort_keys: bool = True) -> None:
    text = json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def require_processor(directory: Path, modality: kinds.Modality) -> None:
    if not any((directory / name).is_file() for name in PROCESSOR):
        kind = kinds.LOADERS[modality][1]
        message = f"the checkpoint has no {kind}: {PROCESSOR[0]} says how the {modality} becomes numbers"
        save = f"{kind.replace(' ', '_')}.save_pretrained(DIRECTORY)"
        raise InputError(message, f"save it beside the model: {save}")


def locate(source: str, code: bool = False, more: Sequence[str] = ()) -> source_files.Location:
    """Return the location of a checkpoint: a directory, or the downloaded files of a hub id (`ORG/NAME[@REVISION]`).

    `more` are patterns of further files to download; with `code`, Python files are downloaded, too. Raises InputError
    for a link out of the directory, and the errors of `hub_id` and `fetch`.
    """
    name = source_files.hub_id(source)
    if name is None:
        directory = Path(source)
        for pattern in ("*", *more):
            for file in directory.glob(pattern):
                source_files.check_inside(directory, file)
        return source_files.Location(directory)

    def choose(paths: Iterable[str]) -> set[str]:
        root = [path for path in paths if "/" not in path]
        weights = [pattern for one, pattern in WEIGHTS.items() if {one, f"{one}.index.json"} & {*root}]
        usual = [*weights[:1], CONFIG, GENERATION_CONFIG, *TOKENIZER, *PROCESSOR, *["*.py"] * code]
        return {
            *source_files.matching([*usual, source_files.CARD])(root),
            *source_files.matching(more)(paths),
        }

    return fetch(name, source.partition("@")[2] or None, choose)


def located_source(
    location: source_files.Location, names: Sequence[str], companions: Sequence[str] = ()
) -> LocatedSource:
    """Hash a checkpoint's files: `names` affect an export, `companions` are only published."""
    directory = location.directory
    for name in (*names, *companions):
        source_files.check_inside(directory, directory / name)
    digest = source_files.digest_files(directory, names)
    card = directory / source_files.CARD
    further = [*([source_files.CARD] if card.is_file() else []), *companions]
    described = source_files.digest_files(directory, further) if further else None
    if location.hub_id is None:
        files = (directory, card, *(directory / name for name in names))
        return LocatedSource(directory, digest, described=described, files=files)
    origin = {"id": location.hub_id, "revision": location.revision, "digest": str(digest)}
    return LocatedSource(directory, digest, Source.from_json(origin), described)


def read_config(directory: Path) -> dict[str, Any]:
    """Read config.json. Raise InputError if it is missing, malformed, or above a limit in `COUNTS`."""
    value = source_files.read_object(directory / CONFIG)
    if not value:
        if (directory / "gliner_config.json").is_file():
            message = "the checkpoint is of GLiNER, which has a format of its own"
            raise InputError(message, "convert it with GLiNER's own converter, then reg add the .onnx file")
        raise InputError(f"the checkpoint has no {CONFIG} that can be read", SAVED)
    parts = [value]
    while parts:
        for key, child in parts.pop().items():
            numbers = child if isinstance(child, list) else [child]
            parts += [number for number in numbers if isinstance(number, dict)]
            most = next((most for pattern, most in COUNTS.items() if pattern.search(key)), math.inf)
            if any(isinstance(n, int | float) and n > most for n in numbers):
                message = f"{CONFIG} of the checkpoint has {key} {str(child)[:80]}, the most is {most:,}"
                raise InputError(message, "give the config.json that the model was trained with")
    return value


def _code_names(value: Any, is_inside: bool = False) -> Iterator[str]:
    """Yield the names of code below each key `auto_map` of a JSON value, such as `modeling.MyModel`."""
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _code_names(child, is_inside or key == "auto_map")
    elif is_inside:
        yield str(value)


def refuse_own_code(directory: Path, trusted: bool) -> None:
    """Raise InputError if a checkpoint needs code that is not `trusted`, or that is in another repository."""
    for name in (CONFIG, "tokenizer_config.json"):
        names = list(_code_names(source_files.read_object(directory / name)))
        if names and not trusted:
            message = f"the checkpoint wants its own code to run ({name} has an auto_map)"
            raise InputError(message, "read that code, then pass --trust-remote-code")
        if foreign := [text for text in names if "--" in text]:
            message = "the checkpoint wants code of another repository to run"
            hint = "copy that code beside the checkpoint, and name it in the auto_map without a repository"
            raise InputError(f"{message}: {name} names {foreign[0][:80]!r}", hint)


def is_timm(config: Mapping[str, Any]) -> bool:
    return kinds.TIMM in config or config.get("model_type") == "timm_wrapper"


def refuse_timm(config: Mapping[str, Any]) -> None:
    """Raise InputError for a timm config with files outside the checkpoint, or with an unusable image size."""
    name, arguments = str(config.get("architecture", ""))[:80], config.get("model_args") or {}
    is_plain = isinstance(arguments, dict) and "checkpoint_path" not in arguments
    if not is_plain or not re.fullmatch(r"[\w.]+", name):
        message = f"{CONFIG} names a model of timm outside the checkpoint ({name})"
        raise InputError(message, SAVE_TIMM)
    stated = config.get(kinds.TIMM)
    if not isinstance(stated, dict):
        raise InputError(f"{kinds.TIMM} in {CONFIG} is not an object", SAVE_TIMM)
    size, part = stated.get("input_size", [3, 224, 224]), stated.get("crop_pct") or 1
    is_size = isinstance(size, list) and len(size) == 3 and all(type(n) is int and n > 0 for n in size)
    is_part = isinstance(part, int | float) and part > 0
    if not is_size or not is_part or max(size[1:]) > MAX_EDGE * min(part, 1):
        message = f"{CONFIG} has the input_size {str(size)[:80]} and the crop_pct {str(part)[:80]}"
        hint = f"[channels, height, width]; divided by the crop_pct, at most {MAX_EDGE:,} pixels at an edge"
        raise InputError(message, hint)
    require("timm", extra="timm", purpose=f"exporting a model of timm ({name})")


def load_model(directory: Path, head: kinds.TaskHead, trust_remote_code: bool = False) -> Any:
    """Load the torch module of a checkpoint with all its trained weights.

    Raises HostError if the memory is too small, and InputError for missing, unused or misshapen weights.
    """
    with no_collection():
        import pickle

        import torch
        import transformers
    auto = getattr(transformers, f"AutoModel{head.suffix if head.auto is None else head.auto}")
    options: Any = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    stated = read_config(directory)
    if is_timm(stated):  # the wrapper of transformers adds num_classes itself
        refuse_timm(stated)
        arguments = stated.get("model_args") or {}
        options["model_args"] = {key: value for key, value in arguments.items() if key != "num_classes"}
    for part in (stated, stated.get("backbone_config")):
        if isinstance(part, dict) and ":" in (name := str(part.get("backbone"))):  # timm would ask the Hub
            raise InputError(f"{CONFIG} names a model of timm outside the checkpoint ({name[:80]})", SAVED)
    size: int | None = None  # from the shapes alone
    with suppress(Exception), no_collection(), silent_transformers(), torch.device("meta"):
        config = transformers.AutoConfig.from_pretrained(directory, **options)
        shapes = auto.from_config(config, attn_implementation="eager", trust_remote_code=trust_remote_code)
        size = PARAMETER_BYTES * sum(tensor.numel() for tensor in shapes.parameters())
    require_memory(size, f"a model of the sizes in {CONFIG}")  # if unknown, the error at loading says why
    try:
        with silent_transformers():
            model, report = auto.from_pretrained(
                directory,
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                weights_only=True,
                **options,
            )
    except pickle.UnpicklingError as error:
        message = "the pickle checkpoint holds more than tensors and was not loaded"
        raise InputError(message, "save the weights as safetensors where they were trained") from error
    except Exception as error:
        raise unloadable("the checkpoint", directory, error) from error
    parts = {model.base_model_prefix, *(name for name, _ in model.named_children())}
    trained = f"export {head.description} that was saved after it was trained"
    described = "config.json must describe the model that was trained; delete weights that it does not use from the file"
    for problem, hint, names in (
        ("the checkpoint has no values for", trained, [
            name for name in report["missing_keys"]
            if not ONLY_FOR_TRAINING.search(name) and (head.suffix or name.partition(".")[0] != "pooler")
        ]),
        ("the checkpoint's shapes differ from its config for", trained, [
            str(entry[0]) for entry in report["mismatched_keys"]
        ]),
        (f"{type(model).__name__} has no place for trained weights of the checkpoint:", described, [
            name for name in report["unexpected_keys"]
            if not NOT_TRAINED.search(name) and (head.suffix or name.partition(".")[0] in parts)
        ]),
    ):  # fmt: skip
        if names:
            raise InputError(f"{problem} {listing(sorted(names), 6)}", hint)
    return model.eval()


def unloadable(
    part: str, directory: Path, error: BaseException, hint: str = "copy its files again, all of one model"
) -> InputError:
    """Return the error for a `part` that transformers cannot load. Raise HostError if a package is missing."""
    refuse_missing(error, part)
    reason = why(error, 300).replace(str(directory), "the checkpoint")
    return InputError(f"{part} could not be loaded: {reason}", hint)


def load_tokenizer(directory: Path, trust_remote_code: bool) -> Any:
    """Load a fast tokenizer that encodes like `tokenizer.json`. Raise InputError if the checkpoint has none."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            directory, use_fast=True, local_files_only=True, trust_remote_code=trust_remote_code
        )
        if (directory / TOKENIZER_FILE).is_file() and tokenizer.is_fast:
            tokenizer = _as_in_file(tokenizer, directory)
        tokenizer = _spelling(tokenizer) if hasattr(tokenizer, "add_blank") else tokenizer
        tokenizer("a")  # wrong settings show only now
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | InputError):
            raise
        hint = f"the checkpoint must hold a {TOKENIZER_FILE}"
        raise unloadable("the tokenizer of the checkpoint", directory, error, hint) from error
    if not tokenizer.is_fast:
        message = f"{type(tokenizer).__name__} has no fast form, so there is no {TOKENIZER_FILE} to ship"
        raise InputError(message, "convert the tokenizer with transformers and save it beside the checkpoint")
    if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
        message = "the checkpoint has no tokenizer: nothing but special tokens is in its vocabulary"
        raise InputError(message, SAVE_TOKENIZER)
    # A padding or truncation baked into tokenizer.json would make every app run at full length.
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def _as_in_file(tokenizer: Any, directory: Path) -> Any:
    """Return the tokenizer if it encodes like `tokenizer.json`. Otherwise, make a tokenizer from that file."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    file = Tokenizer.from_file(str(directory / TOKENIZER_FILE))
    if _encoded(file) == _encoded(tokenizer.backend_tokenizer):
        return tokenizer
    plain = PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True)
    for name, token in tokenizer.special_tokens_map.items():
        if not getattr(plain, name, None) and isinstance(token, str) and file.token_to_id(token) is not None:
            setattr(plain, name, token)
    if file.post_processor is not None:
        plain.backend_tokenizer.post_processor = file.post_processor
    return plain


def _spelling(slow: Any) -> Any:
    """Return the fast form of VITS's tokenizer: a token for each letter, and the token 0 around each letter.

    Raises InputError if another program spells the texts. The slow form may leave out a zero at an end of a text.
    """
    import numpy as np
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # a token beyond, <unk> of MMS, has no row in the model, and what is not a letter is dropped
    vocabulary = {token: at for token, at in slow.get_vocab().items() if at < slow.vocab_size}
    unknown = slow.unk_token if slow.unk_token in vocabulary else None
    letters = "".join(f"\\{one}" if one in "\\[]^-" else one for one in vocabulary if len(one) == 1)
    steps: list[Any] = [normalizers.Replace("ț", "ţ")] if slow.language == "ron" else []
    if slow.normalize:
        drop = normalizers.Replace(Regex(f"[^{letters}]"), "")
        steps = [normalizers.Lowercase(), *steps, drop, normalizers.Strip()]
    if slow.add_blank:
        steps.append(normalizers.Replace(Regex(r"(?=.)|(?<!^)$"), slow.convert_ids_to_tokens(0)))
    backend = Tokenizer(models.BPE(vocabulary, [], unk_token=unknown))
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    is_foreign = slow.phonemize or slow.is_uroman
    for text in () if is_foreign else TRIAL_TEXTS:
        ids, own = (np.trim_zeros(row) for row in (slow(text)["input_ids"], backend.encode(text).ids))
        is_foreign = is_foreign or not np.array_equal(ids, own)
    if is_foreign:
        message = "the tokenizer spells a text with a program that no tokenizer.json has (phonemizer, uroman)"
        raise InputError(
            message, f"export a model that reads letters, such as facebook/mms-tts-eng; or {kinds.OPTIMUM}"
        )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=unknown)


def _encoded(backend: Any) -> list[Any]:
    backend.no_padding()
    backend.no_truncation()
    encodings = [*map(backend.encode, TRIAL_TEXTS), backend.encode(*TRIAL_TEXTS[:2])]
    normalize = backend.normalizer.normalize_str if backend.normalizer else str
    rows = [(one.ids, one.type_ids, one.offsets) for one in encodings]
    return [backend.get_vocab(), rows, *map(normalize, TRIAL_TEXTS)]


def find_base(directory: Path, find: Callable[[str], source_files.Location]) -> source_files.Location | None:
    """Return the base model that an adapter's config names; None if the directory has no adapter.

    Raises InputError if the base model is missing or is an adapter, or if the directory also has a whole model.
    """
    if not (directory / ADAPTER_CONFIG).is_file():
        return None
    config = source_files.read_object(directory / ADAPTER_CONFIG)
    if source_files.weight_files(directory):
        message = f"the checkpoint has weights of a model, and an adapter ({ADAPTER_CONFIG}) of another"
        raise InputError(message, "keep the two in directories of their own, and name one")
    base, revision = str(config.get("base_model_name_or_path") or ""), config.get("revision")
    beside = directory / base
    try:
        if not base:
            raise NotFoundError("the adapter names no model")
        location = find(str(beside) if beside.is_dir() else f"{base}@{revision}" if revision else base)
    except (NotFoundError, RemoteError) as error:
        if isinstance(error, RemoteError) and "/" in base:  # a hub id, and the Hub did not answer
            raise
        named = Path(base).name[:80] or "a model that it does not name"
        reason = "" if "/" in base else f": {error.message}"  # of a name that may also be a hub id
        hint = f"name the directory of its model in {ADAPTER_CONFIG}: base_model_name_or_path"
        raise InputError(f"an adapter of {named}, which is not here{reason}", hint) from error
    if (location.directory / ADAPTER_CONFIG).is_file():
        message = f"the model of the adapter has an adapter too ({ADAPTER_CONFIG})"
        raise InputError(message, "merge that one first, with peft, and save the whole model")
    return location


def merge_adapter(model: Any, directory: Path) -> Any:
    """Merge an adapter into its base model, in place, and return the result.

    Raises InputError unless the adapter's weights fit the model exactly, and HostError if peft is not installed.
    """
    require("peft", extra="peft", purpose="exporting an adapter")
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors.torch import load_file

    hint = f"give the model that it was trained on, in {ADAPTER_CONFIG}: base_model_name_or_path"
    try:
        saved = load_file(directory / ADAPTER_WEIGHTS)
        with silent_transformers(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            adapted = PeftModel.from_pretrained(model, str(directory))
            placed = get_peft_model_state_dict(adapted, save_embedding_layers=False)
            result = adapted.merge_and_unload(safe_merge=True)
    except Exception as error:
        first = str(error).replace(":\n\t", ": ", 1)  # torch names the tensor on the second line
        reason = why(first or error, 400).replace(str(directory), "the adapter")
        raise InputError(f"the adapter does not fit its model: {reason}", hint) from error
    if other := sorted(saved.keys() ^ placed.keys()):
        raise InputError(f"the adapter is of another model: {other[0][:200]} has no counterpart", hint)
    return result
