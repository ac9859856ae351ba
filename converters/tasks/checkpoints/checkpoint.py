"""Load a trained checkpoint: refuse random weights, and run none of its code without consent.

A `TaskHead` is the class of transformers that loads a checkpoint, and the outputs of its graph. The tokenizer is the fast one;
each of its tokens must have an embedding.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.quiet import silent_transformers
from onnxreg.converters.source.location import Location, check_inside, locate
from onnxreg.converters.source.scrub import read_json
from onnxreg.converters.source.source_files import (
    CARD,
    CONFIG,
    TOKENIZER,
    digest_files,
    taking_part,
    weight_files,
)
from onnxreg.converters.source.toolchain import refuse_missing, require
from onnxreg.converters.tasks.checkpoints import sentence_files
from onnxreg.converters.tasks.checkpoints.torch_weights import COMPILED, prefix_of
from onnxreg.converters.tasks.task import LocatedSource
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import Source

ADAPTER_CONFIG = "adapter_config.json"
"""Refers to another model, which transformers would load if peft is installed; no digest covers that."""

TOKENIZER_FILE = "tokenizer.json"
SAVE_TOKENIZER = "save the tokenizer beside the model: tokenizer.save_pretrained(DIRECTORY)"
TRIAL_TEXTS = (
    "The patient was SEEN on 2024-03-18 by Dr. Maria O'Neill-Lindqvist (ward_7B), and can't walk.",
    "Le dossier n\u00b0 88\u20111204 na\u00efve \u00dcBER \u0130stanbul stra\u00dfe cafe\u0301 \ufb01ve \u2460 \uff26\uff35\uff2c\uff2c.",
    "  Two  spaces,\ta tab,\na line; \u6628\u65e5\u3001\u7530\u4e2d\u3055\u3093 \uc548\ub155 \u0645\u0631\u062d\u0628\u0627 \U0001f600 1234567 <x>@a.org \u200b\u00ad\u00a0x ",
)
"""Texts in which tokenizers differ: letter case, accents, digits, spaces, scripts, forms of one letter."""

NOT_TRAINED = re.compile(
    r"(^|\.)(pooler\..*|position_ids|token_type_ids|(\w+_)?inv_freq|masked_bias|attn\.bias|num_batches_tracked"
    r"|(cos|sin)_cached|relative_position_index)$"
)
"""Names of a pooler, and of buffers that older versions of transformers saved."""
RELATIVE_POSITIONS = ("relative_key", "relative_key_query")

BATCH, SEQUENCE = "batch", "sequence"


@dataclass(frozen=True)
class TaskHead:
    """`suffix` is the end of the names of its classes, `BertForTokenClassification` and
    `AutoModelForTokenClassification`.

    `outputs` are the dynamic axes, the first ones, of each output; `labelled` says that the last axis counts
    labels.
    """

    suffix: str
    description: str
    outputs: Mapping[str, tuple[str, ...]]
    labelled: bool = False

    @property
    def auto_class(self) -> str:
        return f"AutoModel{self.suffix}"

    def of_use(self, parameter: str) -> bool:
        """Tell if the outputs depend on a parameter: hidden states do not depend on the pooler of BERT."""
        return bool(self.suffix) or parameter.partition(".")[0] != "pooler"


ENCODER = TaskHead("", "encoder", {"last_hidden_state": (BATCH, SEQUENCE)})
SPANS = TaskHead(
    "ForQuestionAnswering",
    "question answerer",
    {"start_logits": (BATCH, SEQUENCE), "end_logits": (BATCH, SEQUENCE)},
)
IMAGES = TaskHead("ForImageClassification", "image classifier", {"logits": (BATCH,)}, labelled=True)
TEXTS = TaskHead("ForSequenceClassification", "text classifier", {"logits": (BATCH,)}, labelled=True)
TOKENS = TaskHead("ForTokenClassification", "token classifier", {"logits": (BATCH, SEQUENCE)}, labelled=True)
OTHER_HEADS = {
    SPANS.suffix: "export it with --task question-answering",
    TEXTS.suffix: "export it with --task text-classification",
    TOKENS.suffix: "export it with --task token-classification",
    IMAGES.suffix: "an image classifier is exported from a function that makes it, see docs/vision.md",
    "ForCausalLM": "a decoder that writes text is exported by the pass ModelBuilder of a recipe, see docs/recipes.md",
}
"""Hints for a checkpoint of another head, by the end of its class."""


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A trained checkpoint in memory.

    `model` is a torch module on the CPU in float32 and evaluation mode with eager attention; `tokenizer` is a
    fast tokenizer that pads and truncates only when asked, None without one; `labels` are in the order of the logits, none
    without a head that has some. `config` is as it was saved; the model itself keeps no cache of keys and
    values.
    """

    model: Any
    tokenizer: Any
    config: Any
    labels: tuple[str, ...]
    source: Source
    directory: Path
    trust_remote_code: bool

    @property
    def text_reader(self) -> Any:
        """The tokenizer; InputError without one."""
        if self.tokenizer is None:
            raise InputError("the checkpoint has no tokenizer, so no text can be read", SAVE_TOKENIZER)
        return self.tokenizer


def load_checkpoint(
    source: str, name: str, head: TaskHead, trust_remote_code: bool = False
) -> LoadedCheckpoint:
    """Find and load a checkpoint."""
    require("torch", "transformers")
    return load_located(find_checkpoint(source, head, trust_remote_code), name, head, trust_remote_code)


def find_checkpoint(
    source: str,
    head: TaskHead,
    trust_remote_code: bool = False,
    sentences: bool = False,
    modules: bool = False,
) -> LocatedSource:
    """Find and hash a checkpoint with a head; nothing heavy is imported.

    Args:
        source: a checkpoint directory, or a hub id with an optional `@revision`.
        sentences: True if the files of sentence-transformers about pooling shape the export.
        modules: True if all its files become companions.

    Raises NotFoundError or RemoteError if the source cannot be read, InputError if it is not a complete
    checkpoint of this kind, or needs its own code to run without permission.
    """
    patterns = sentence_files.PATTERNS if sentences else sentence_files.MODULE_PATTERNS if modules else ()
    location = locate(source, trust_remote_code, patterns)
    folder = sentence_files.transformer_folder(location.directory)
    directory = location.directory / folder
    raw = _raw_config(directory)
    _refuse_own_code(directory, trust_remote_code)
    _check_architecture(raw, head)
    if not weight_files(directory):
        raise InputError(
            "the checkpoint has no weights: neither model.safetensors nor pytorch_model.bin",
            "give the directory that save_pretrained wrote",
        )
    names = [f"{folder}/{name}" if folder else name for name in taking_part(directory, trust_remote_code)]
    names += sentence_files.present(location.directory) if sentences else []
    companions = sentence_files.module_files(location.directory) if modules else []
    return located_source(location, names, companions)


def located_source(location: Location, names: Sequence[str], companions: Sequence[str] = ()) -> LocatedSource:
    """Describe a location as a source: `names` are the files that shape an export, `companions` are only copied."""
    directory = location.directory
    for name in (*names, *companions):
        check_inside(directory, directory / name)
    digest = digest_files(directory, names)
    card = directory / CARD
    further = [*([CARD] if card.is_file() else []), *companions]
    described = digest_files(directory, further) if further else None
    files = (directory, card, *(directory / name for name in names))
    if location.hub_id is None:
        return LocatedSource(directory, digest, described=described, files=files)
    origin = {"id": location.hub_id, "revision": location.revision, "digest": str(digest)}
    return LocatedSource(directory, digest, Source.from_json(origin), location.hub_id.lower(), described)


def load_located(
    source: LocatedSource, name: str, head: TaskHead, trust_remote_code: bool = False
) -> LoadedCheckpoint:
    """Load a located checkpoint.

    Args:
        name: published name of a directory, in place of its path.

    Raises InputError if it is not trained, or its tokenizer has no fast form.
    """
    root: Path = source.location
    directory = root / sentence_files.transformer_folder(root)
    with silent_transformers():
        model = _load_model(directory, head, trust_remote_code)
        tokenizer = load_tokenizer(directory, trust_remote_code) if has_tokenizer(directory) else None
    if tokenizer is not None:
        check_vocabulary(model, tokenizer)
    labels = _labels(_raw_config(directory), model.config) if head.labelled else ()
    published = source.origin or Source.from_json({"id": name, "digest": str(source.digest)})
    config = copy.deepcopy(model.config)
    model.config.use_cache = False
    return LoadedCheckpoint(model, tokenizer, config, labels, published, root, trust_remote_code)


def load_model(directory: Path, head: TaskHead) -> Any:
    """Load only the torch module of a checkpoint directory. InputError if it is not trained."""
    if not weight_files(directory):
        raise InputError("the checkpoint has no weights", "give the directory that save_pretrained wrote")
    with silent_transformers():
        return _load_model(directory, head, trust_remote_code=False)


def has_tokenizer(directory: Path) -> bool:
    """Return True if a checkpoint directory has files of a tokenizer."""
    return any((directory / name).is_file() for name in TOKENIZER)


def load_tokenizer(directory: Path, trust_remote_code: bool) -> Any:
    """Load a fast tokenizer that pads and truncates only on request; InputError if the checkpoint has none.

    Its `tokenizer.json` is the truth: where transformers builds another tokenizer for the class, the file is taken.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            directory, use_fast=True, local_files_only=True, trust_remote_code=trust_remote_code
        )
        if (directory / TOKENIZER_FILE).is_file() and tokenizer.is_fast:
            tokenizer = _as_in_file(tokenizer, directory)
    except Exception as error:
        refuse_missing(error, "the tokenizer of the checkpoint")
        reason = str(error).replace(str(directory), "the checkpoint").strip() or type(error).__name__
        raise InputError(
            f"the tokenizer of the checkpoint could not be loaded: {reason.splitlines()[0][:300]}",
            f"the checkpoint must hold a {TOKENIZER_FILE}",
        ) from error
    if not tokenizer.is_fast:
        raise InputError(
            f"{type(tokenizer).__name__} has no fast form, so there is no {TOKENIZER_FILE} to ship",
            "convert the tokenizer with transformers and save it beside the checkpoint",
        )
    if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
        raise InputError(
            "the checkpoint has no tokenizer: nothing but special tokens is in its vocabulary",
            SAVE_TOKENIZER,
        )
    # A padding or truncation baked into tokenizer.json would make every app run at full length.
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def _as_in_file(tokenizer: Any, directory: Path) -> Any:
    """Return a tokenizer of transformers that does what the file says: itself, or a plain one around the file.

    The plain one has the special tokens of the class, as far as they are in the file.
    """
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    file = Tokenizer.from_file(str(directory / TOKENIZER_FILE))
    if _encoded(file) == _encoded(tokenizer.backend_tokenizer):
        return tokenizer
    plain = PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True)
    for name, token in tokenizer.special_tokens_map.items():
        if (
            isinstance(token, str)
            and getattr(plain, name, None) is None
            and file.token_to_id(token) is not None
        ):
            setattr(plain, name, token)
    if file.post_processor is not None:
        plain.backend_tokenizer.post_processor = file.post_processor
    return plain


def _encoded(backend: Any) -> list[Any]:
    """Return the vocabulary of a tokenizer of the library `tokenizers`, and what it makes of texts and a pair."""
    backend.no_padding()
    backend.no_truncation()
    normalizer = backend.normalizer
    encodings = [*map(backend.encode, TRIAL_TEXTS), backend.encode(*TRIAL_TEXTS[:2])]
    return [
        backend.get_vocab(),
        [text if normalizer is None else normalizer.normalize_str(text) for text in TRIAL_TEXTS],
        [(one.ids, one.type_ids, one.offsets) for one in encodings],
    ]


def check_vocabulary(model: Any, tokenizer: Any) -> None:
    """Raise InputError for a token without a row in the embedding table."""
    rows = getattr(model.get_input_embeddings(), "num_embeddings", None)
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if rows is not None and highest >= rows:
        raise InputError(
            f"the tokenizer has tokens up to {highest}, but the model has embeddings for {rows}",
            "give the tokenizer that the checkpoint was trained with, or resize the embeddings and train them",
        )


def _raw_config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    if not path.is_file():
        raise InputError("the checkpoint has no config.json", "give the directory that save_pretrained wrote")
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError("config.json of the checkpoint is not a JSON object")
    return value


def _refuse_own_code(directory: Path, trusted: bool) -> None:
    """Raise InputError for code that is not trusted, or not in the checkpoint's own files, which its digest
    covers.
    """
    if (directory / ADAPTER_CONFIG).is_file():
        raise InputError(
            f"the checkpoint has an {ADAPTER_CONFIG}: it is an adapter, whose model is elsewhere",
            "merge it into its model, and save that",
        )
    for name in (CONFIG, "tokenizer_config.json"):
        path = directory / name
        code_names = list(_code_named(read_json(path))) if path.is_file() else []
        if code_names and not trusted:
            raise InputError(
                f"the checkpoint wants its own code to run ({name} has an auto_map)",
                "read that code, then pass --trust-remote-code",
            )
        if foreign_names := [text for text in code_names if "--" in text]:
            raise InputError(
                f"the checkpoint wants code of another repository to run: {name} names {foreign_names[0][:80]!r}",
                "copy that code beside the checkpoint, and name it in the auto_map without a repository",
            )


def _code_named(value: Any) -> Iterator[str]:
    """Yield every text under an `auto_map`, at any depth of a JSON value: `[<repository>--]<module>.<class>`."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _texts(child) if key == "auto_map" else _code_named(child)
    elif isinstance(value, list):
        for child in value:
            yield from _code_named(child)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _texts(child)
    else:
        yield str(value)


def _check_architecture(raw: dict[str, Any], head: TaskHead) -> None:
    architectures = raw.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise InputError("architectures in config.json of the checkpoint is not a list of names")
    if raw.get("is_encoder_decoder") is True:
        raise InputError(
            "an encoder-decoder takes the words so far as a second input, which no task here has",
            "export it with Optimum, then reg import the directory; or its encoder, saved as a checkpoint of its own",
        )
    if architectures and not any(name.endswith(head.suffix) for name in architectures):
        hints = [hint for suffix, hint in OTHER_HEADS.items() if architectures[0].endswith(suffix)]
        raise InputError(
            f"not a {head.description}: config.json says {', '.join(architectures)[:200]}",
            hints[0]
            if hints
            else f"a head that was never trained gives random numbers: export a {head.description} that was trained",
        )


def _load_model(directory: Path, head: TaskHead, trust_remote_code: bool) -> Any:
    import pickle

    import torch
    import transformers

    def load(key_mapping: dict[str, str] | None = None) -> Any:
        return getattr(transformers, head.auto_class).from_pretrained(
            directory,
            dtype=torch.float32,
            attn_implementation="eager",
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            weights_only=True,
            local_files_only=True,
            trust_remote_code=trust_remote_code,
            key_mapping=key_mapping,
        )

    try:
        model, report = load()
        if any(COMPILED in name for name in report["unexpected_keys"]):
            model, report = load({re.escape(COMPILED): ""})
    except pickle.UnpicklingError as error:
        raise InputError(
            "the pickle checkpoint holds more than tensors and was not loaded",
            "save the weights as safetensors where they were trained",
        ) from error
    except Exception as error:
        refuse_missing(error, "the checkpoint")
        reason = str(error).replace(str(directory), "the checkpoint").strip() or type(error).__name__
        raise InputError(f"the checkpoint could not be loaded: {reason.splitlines()[0][:300]}") from error
    _refuse_incomplete(report, head)
    _refuse_dropped(report["unexpected_keys"], model, head, _raw_config(directory))
    return model.eval()


def _refuse_incomplete(report: dict[str, Any], head: TaskHead) -> None:
    """Raise InputError for missing weights: a head without weights would hold random numbers."""
    missing = sorted(filter(head.of_use, report["missing_keys"]))
    mismatched = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    hint = f"export a {head.description} that was saved after it was trained"
    if missing:
        if prefix := prefix_of(report["unexpected_keys"], missing):
            raise InputError(
                f"the names of the checkpoint's weights begin with {prefix}, those of the class do not",
                "save the state dict of the module inside",
            )
        raise InputError(f"the checkpoint has no values for {_some(missing)}", hint)
    if mismatched:
        raise InputError(f"the checkpoint's shapes differ from its config for {_some(mismatched)}", hint)


def _refuse_dropped(unexpected: Iterable[str], model: Any, head: TaskHead, raw: dict[str, Any]) -> None:
    """Raise InputError for trained weights that the class has no place for: its results would be others.

    An encoder needs no head, no class a pooler that it does not have, and buffers are computed from the config.
    """
    parts = {model.base_model_prefix, *(name for name, _ in model.named_children())}
    dropped = sorted(
        name
        for name in unexpected
        if not NOT_TRAINED.search(name) and (head.suffix or name.partition(".")[0] in parts)
    )
    relative = raw.get("position_embedding_type")
    if relative in RELATIVE_POSITIONS and not any(
        "distance_embedding" in name for name in model.state_dict()
    ):
        raise InputError(
            f"position_embedding_type in config.json is {relative}, which {type(model).__name__} of this "
            "transformers does not compute",
            "export it with transformers 4.57 and Optimum, then reg import the directory",
        )
    if dropped:
        raise InputError(
            f"{type(model).__name__} has no place for trained weights of the checkpoint: {_some(dropped)}",
            "config.json must describe the model that was trained; delete weights that it does not use from the file",
        )


def _some(names: list[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _labels(raw: dict[str, Any], config: Any) -> tuple[str, ...]:
    """Return the labels in the order of the logits; InputError if the config contradicts itself."""
    id2label = {int(key): str(value) for key, value in config.id2label.items()}
    count = len(id2label)
    if sorted(id2label) != list(range(count)):
        raise InputError(f"id2label of the checkpoint does not number its labels from 0 to {count - 1}")
    labels = tuple(id2label[index] for index in range(count))
    if len(set(labels)) != count:
        raise InputError("id2label of the checkpoint gives one label to two ids")
    label2id = raw.get("label2id")
    for label, number in label2id.items() if isinstance(label2id, dict) else ():
        index = int(number) if str(number).isdecimal() else -1
        if label != f"LABEL_{number}" and id2label.get(index) != label:
            raise InputError(
                f"label2id and id2label in config.json of the checkpoint do not match: {label[:80]!r} is "
                f"{str(number)[:20]} in label2id, and id2label[{str(number)[:20]}] is another",
                "correct the one that is wrong: an output's label is taken from id2label",
            )
    return labels
