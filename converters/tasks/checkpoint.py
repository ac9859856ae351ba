"""Loading a trained token classifier: nothing random in it, and nothing of its own code run unasked."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxreg.converters.modelcard import CARD
from onnxreg.converters.passes.quiet import quiet
from onnxreg.converters.scrub import read_json
from onnxreg.converters.sourcefiles import CONFIG, Location, digest_files, locate, taking_part, weight_files
from onnxreg.converters.tasks.base import Found
from onnxreg.converters.toolchain import require
from onnxreg.schema.errors import InputError
from onnxreg.schema.manifest import Source

TASK = "ForTokenClassification"


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A trained checkpoint in memory.

    `model` is a torch module on the CPU in float32 and evaluation mode with eager attention; `tokenizer` is a fast
    tokenizer that pads and truncates only when asked; `labels` are in the order of the logits.
    """

    model: Any
    tokenizer: Any
    config: Any
    labels: tuple[str, ...]
    source: Source
    directory: Path
    trust_remote_code: bool

    def without_model(self) -> "LoadedCheckpoint":
        """The same checkpoint once its torch model is no longer needed, so that its memory is free."""
        return replace(self, model=None)

    def recorded_as(self, origin: Source) -> "LoadedCheckpoint":
        """The same checkpoint under another id and revision; the digest stays that of its files."""
        return replace(self, source=origin.model_copy(update={"digest": self.source.digest}))


def load_checkpoint(source: str, name: str, trust_remote_code: bool = False) -> LoadedCheckpoint:
    """`find_checkpoint`, then `load_found`."""
    require("torch", "transformers")
    return load_found(find_checkpoint(source, trust_remote_code), name, trust_remote_code)


def find_checkpoint(source: str, trust_remote_code: bool = False) -> Found:
    """Find and hash a token-classification checkpoint; nothing heavy is imported.

    Args:
        source: a checkpoint directory, or a hub id with an optional `@revision`.

    Raises NotFoundError or RemoteError where the source cannot be had, InputError where it is no complete token
    classifier, or wants its own code to run and may not.
    """
    found = locate(source, trust_remote_code)
    directory = found.directory
    raw = _raw_config(directory)
    _refuse_own_code(directory, trust_remote_code)
    _check_task(raw)
    if not weight_files(directory):
        raise InputError(
            "the checkpoint has no weights: neither model.safetensors nor pytorch_model.bin",
            "give the directory that save_pretrained wrote",
        )
    return found_in(found, taking_part(directory, trust_remote_code))


def found_in(location: Location, names: Sequence[str]) -> Found:
    """What was found at a location, where these of its files take part in an export."""
    directory = location.directory
    digest = digest_files(directory, names)
    card = directory / CARD
    described = digest_files(directory, [CARD]) if card.is_file() else None
    files = (directory, card, *(directory / name for name in names))
    if location.hub_id is None:
        return Found(directory, digest, described=described, files=files)
    origin = {"id": location.hub_id, "revision": location.revision, "digest": str(digest)}
    return Found(directory, digest, Source.from_json(origin), location.hub_id.lower(), described)


def load_found(found: Found, name: str, trust_remote_code: bool = False) -> LoadedCheckpoint:
    """Load a checkpoint that was found.

    Args:
        name: what a directory is called in what is published, in place of its path.

    Raises InputError where it is no trained token classifier with a fast tokenizer.
    """
    directory = found.where
    with _silent_transformers():
        model = _load_model(directory, "AutoModelForTokenClassification", trust_remote_code)
        tokenizer = _load_tokenizer(directory, trust_remote_code)
    _check_vocabulary(model, tokenizer)
    labels = _labels(_raw_config(directory), model.config)
    published = found.origin or Source.from_json({"id": name, "digest": str(found.digest)})
    return LoadedCheckpoint(model, tokenizer, model.config, labels, published, directory, trust_remote_code)


def _raw_config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    if not path.is_file():
        raise InputError("the checkpoint has no config.json", "give the directory that save_pretrained wrote")
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError("config.json of the checkpoint is not a JSON object")
    return value


def _refuse_own_code(directory: Path, trusted: bool) -> None:
    """Code may run once it is trusted, and only from the checkpoint's own files, which its digest covers."""
    for name in (CONFIG, "tokenizer_config.json"):
        path = directory / name
        named = list(_code_named(read_json(path))) if path.is_file() else []
        if named and not trusted:
            raise InputError(
                f"the checkpoint wants its own code to run ({name} has an auto_map)",
                "read that code, then pass --trust-remote-code",
            )
        if elsewhere := [text for text in named if "--" in text]:
            raise InputError(
                f"the checkpoint wants code of another repository to run: {name} names {elsewhere[0][:80]!r}",
                "copy that code beside the checkpoint, and name it in the auto_map without a repository",
            )


def _code_named(value: Any) -> Iterator[str]:
    """Every text under an `auto_map`, at any depth of a JSON value: `[<repository>--]<module>.<class>`."""
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


def _check_task(raw: dict[str, Any]) -> None:
    architectures = raw.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise InputError("architectures in config.json of the checkpoint is not a list of names")
    if architectures and not any(name.endswith(TASK) for name in architectures):
        raise InputError(
            f"not a token classifier: config.json says {', '.join(architectures)[:200]}",
            "this profile exports checkpoints with a trained token-classification head",
        )


def load_trained(directory: Path, kind: str) -> Any:
    """A torch module in float32 and evaluation mode with eager attention, none of its weights random, by the class `kind`
    of transformers, such as `AutoModelForImageClassification`.

    Raises InputError where the checkpoint has no weights, holds more than tensors, is not complete, or does not load.
    """
    if not weight_files(directory):
        raise InputError(
            "the checkpoint has no weights: neither model.safetensors nor pytorch_model.bin",
            "give the directory that save_pretrained wrote",
        )
    with _silent_transformers():
        return _load_model(directory, kind, trust_remote_code=False)


def _load_model(directory: Path, kind: str, trust_remote_code: bool) -> Any:
    import pickle

    import torch
    import transformers

    try:
        model, report = getattr(transformers, kind).from_pretrained(
            directory,
            dtype=torch.float32,
            attn_implementation="eager",
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            weights_only=True,
            local_files_only=True,
            trust_remote_code=trust_remote_code,
        )
    except pickle.UnpicklingError as error:
        raise InputError(
            "the pickle checkpoint holds more than tensors and was not loaded",
            "save the weights as safetensors where they were trained",
        ) from error
    except Exception as error:
        reason = str(error).replace(str(directory), "the checkpoint").strip() or type(error).__name__
        raise InputError(f"the checkpoint could not be loaded: {reason.splitlines()[0][:300]}") from error
    _refuse_incomplete(report)
    return model.eval()


def _refuse_incomplete(report: dict[str, Any]) -> None:
    """A head that the checkpoint does not hold would be random numbers."""
    missing = sorted(report["missing_keys"])
    mismatched = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    hint = "export a checkpoint that was saved after its classification head was trained"
    if missing:
        raise InputError(f"the checkpoint has no values for {_some(missing)}", hint)
    if mismatched:
        raise InputError(f"the checkpoint's shapes differ from its config for {_some(mismatched)}", hint)


def _some(names: list[str], most: int = 6) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _load_tokenizer(directory: Path, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            directory, use_fast=True, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except Exception as error:
        reason = str(error).replace(str(directory), "the checkpoint").strip() or type(error).__name__
        raise InputError(
            f"the tokenizer of the checkpoint could not be loaded: {reason.splitlines()[0][:300]}",
            "the checkpoint must hold a tokenizer.json",
        ) from error
    if not tokenizer.is_fast:
        raise InputError(
            f"{type(tokenizer).__name__} has no fast form, so there is no tokenizer.json to ship",
            "convert the tokenizer with transformers and save it beside the checkpoint",
        )
    if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
        raise InputError(
            "the checkpoint has no tokenizer: nothing but special tokens is in its vocabulary",
            "save the tokenizer beside the model: tokenizer.save_pretrained(DIRECTORY)",
        )
    # A padding or truncation baked into tokenizer.json would make every app run at full length.
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def _check_vocabulary(model: Any, tokenizer: Any) -> None:
    """A token without a row in the embedding table stops the model wherever it is met."""
    rows = getattr(model.get_input_embeddings(), "num_embeddings", None)
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if rows is not None and highest >= rows:
        raise InputError(
            f"the tokenizer has tokens up to {highest}, but the model has embeddings for {rows}",
            "give the tokenizer that the checkpoint was trained with, or resize the embeddings and train them",
        )


def _labels(raw: dict[str, Any], config: Any) -> tuple[str, ...]:
    """The labels in the order of the logits; InputError where the config contradicts itself."""
    id2label = {int(key): str(value) for key, value in config.id2label.items()}
    count = len(id2label)
    if sorted(id2label) != list(range(count)):
        raise InputError(f"id2label of the checkpoint does not number its labels from 0 to {count - 1}")
    labels = tuple(id2label[index] for index in range(count))
    if len(set(labels)) != count:
        raise InputError("id2label of the checkpoint gives one label to two ids")
    label2id = raw.get("label2id")
    if isinstance(label2id, dict) and label2id != {label: index for index, label in enumerate(labels)}:
        raise InputError("label2id and id2label of the checkpoint do not match")
    return labels


@contextlib.contextmanager
def _silent_transformers() -> Iterator[None]:
    """Silence transformers' load reports: what matters of them is raised as an error."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with quiet():
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
