"""The directory of a checkpoint, its files that take part in an export, and its model card."""

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest, directory_digest
from onnxreg.schema.core.errors import Advice, InputError, NotFoundError, RemoteError, missing_extra
from onnxreg.schema.core.file_state import SETTLED_NANOSECONDS, FileState
from onnxreg.schema.core.text_files import VALUE_ERRORS

CONFIG = "config.json"
GENAI_CONFIG = "genai_config.json"
"""The settings of onnxruntime-genai, in the folder of a graph."""
SAFE_WEIGHTS = ("model.safetensors.index.json", "model.safetensors")
PICKLE_WEIGHTS = ("pytorch_model.bin.index.json", "pytorch_model.bin")
TOKENIZER = (
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "spm.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?(?:@[\w./-]+)?")
_TOKENIZER = frozenset(
    {"vocab.txt", "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json"}
)
_ROLES = {
    "config.json": "config",
    "id2label.json": "labels",
    "recall_delta.json": "report",
    "sentencepiece.bpe.model": "tokenizer",
    "spiece.model": "tokenizer",
    "spm.model": "tokenizer",
}
_known: dict[FileState, Digest] = {}
CARD = "README.md"
MAX_CARD_BYTES = 2**20
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Location:
    """A checkpoint on this machine. `hub_id` and `revision` (a commit) are None for a directory of the user's."""

    directory: Path
    hub_id: str | None = None
    revision: str | None = None


def hub_id(source: str) -> str | None:
    """The hub id that a source names, without its revision; None if it names a directory.

    Raises NotFoundError for a text that is neither a directory nor can be a hub id.
    """
    if Path(source).is_dir():
        return None
    if Path(source).suffix in (".onnx", ".ort") and Path(source).is_file():
        raise NotFoundError(
            f"{source} is a file, not the directory of a checkpoint", Advice("add-file", file=source)
        )
    if not HUB_ID.fullmatch(source) or Path(source).exists():
        raise NotFoundError(
            f"no such checkpoint directory: {source}", "give a directory or a hub id such as ORG/NAME"
        )
    return source.partition("@")[0]


def locate(source: str, code: bool = False, more: Sequence[str] = ()) -> Location:
    """Find the directory of a checkpoint: a directory as it is, a hub id through the hub's normal cache.

    Args:
        source: a directory, or `id[@revision]` of a model on the Hugging Face hub.
        code: fetch the repository's Python files too.
        more: patterns of further files to fetch, which may be in directories.

    Raises NotFoundError if there is no such directory or model, RemoteError if the hub cannot be reached.
    """
    name = hub_id(source)
    if name is None:
        return Location(Path(source))
    directory = _download(name, source.partition("@")[2] or None, code, more)
    return Location(directory, name, directory.name)


def weight_files(directory: Path) -> list[str]:
    """The weight files that will be read, safetensors before pickles; empty if there are none.

    Raises InputError for a shard that the index names but that is missing.
    """
    for index, single in (SAFE_WEIGHTS, PICKLE_WEIGHTS):
        if (directory / single).is_file():
            return [single]
        if (directory / index).is_file():
            return [index, *_shards(directory, index)]
    return []


def taking_part(directory: Path, code: bool) -> list[str]:
    """The files of a checkpoint that shape an export, sorted: config, weights, tokenizer, and code if it may run."""
    names = {CONFIG, *weight_files(directory), *TOKENIZER}
    if code:
        names |= {path.name for path in directory.glob("*.py")}
    return sorted(name for name in names if (directory / name).is_file())


def digest_files(directory: Path, names: Iterable[str]) -> Digest:
    """The digest of a directory that holds these files of another one, see `directory_digest`."""
    return directory_digest({name: digest_file(directory / name) for name in names})


def role_of(path: str) -> str:
    """The role of a companion by its file name: config, labels, tokenizer, report, operator-config or other."""
    name = path.rpartition("/")[2]
    if name in _TOKENIZER or (name.startswith("tokenizer") and name.endswith((".json", ".model"))):
        return "tokenizer"
    return "operator-config" if name.endswith(".config") else _ROLES.get(name, "other")


def digest_file(path: Path) -> Digest:
    """The SHA-256 of a file's bytes; one whose state is known, and was settled then, is not read again.

    What another process writes through a memory map meanwhile is not noticed.
    """
    with path.open("rb") as file:
        before = FileState.of(os.fstat(file.fileno()))
        if before in _known:
            return _known[before]
        settled = before.is_settled(time.time_ns(), SETTLED_NANOSECONDS)
        digest = Digest(hashlib.file_digest(file, "sha256").hexdigest())
        if settled and before == FileState.of(os.fstat(file.fileno())):
            _known[before] = digest
    return digest


def read_metadata(directory: Path) -> dict[str, Any]:
    """The metadata of a model card; empty without a card that can be read."""
    import yaml

    card = directory / CARD
    if not card.is_file() or card.stat().st_size > MAX_CARD_BYTES:
        return {}
    match = _FRONT_MATTER.match(card.read_text(encoding="utf-8", errors="replace"))
    try:
        value = yaml.safe_load(match[1]) if match else None
    except (yaml.YAMLError, RecursionError, *VALUE_ERRORS):
        return {}
    return value if isinstance(value, dict) else {}


def read_license(directory: Path) -> str | None:
    """The licence that the model card states in its metadata, None if it states none."""
    license_name = read_metadata(directory).get("license")
    return license_name if isinstance(license_name, str) else None


@contextmanager
def hub_errors(name: str, revision: str | None, or_directory: bool = False) -> Iterator[None]:
    """Translate what `snapshot_download` raises.

    Args:
        or_directory: the user may have meant a directory by `name`.
    """
    from huggingface_hub import errors

    prefix = f"there is no directory {name}; " if or_directory else ""
    check = f"check the name {name}, or the network" if or_directory else "check the network"
    try:
        yield
    except errors.HFValidationError as error:
        raise InputError(f"{prefix}{name} cannot be a repository on the Hub", "check its name") from error
    except errors.LocalEntryNotFoundError as error:
        raise RemoteError(
            f"{prefix}the Hub cannot be reached, and {name} is not in its cache", check
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        model = f"{name}@{revision}" if revision else name
        raise NotFoundError(
            f"{prefix}the Hub has no repository {model}", "check its name; a gated model needs HF_TOKEN"
        ) from error
    except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
        raise RemoteError(
            f"{name} could not be fetched from the Hub: {getattr(error, 'strerror', None) or type(error).__name__}",
            "check the network and the disk, then run the command again",
        ) from error


def _download(name: str, revision: str | None, code: bool, more: Sequence[str]) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise missing_extra("huggingface_hub", "export", "loading a checkpoint from the hub") from error

    def fetch(weights: str) -> Path:
        patterns = [
            CONFIG,
            *TOKENIZER,
            "README.md",
            weights,
            f"{weights}.index.json",
            *(["*.py"] if code else []),
        ]
        return Path(
            snapshot_download(name, revision=revision, allow_patterns=patterns, ignore_patterns="*/*")
        )

    with hub_errors(name, revision, or_directory=True):
        directory = fetch("model*.safetensors")
        if more:
            snapshot_download(name, revision=directory.name, allow_patterns=list(more))
        return directory if weight_files(directory) else fetch("pytorch_model*.bin")


def _shards(directory: Path, index: str) -> list[str]:
    value = canonical.decode((directory / index).read_bytes(), index)
    table = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise InputError(f"{index} has no weight_map")
    shards = sorted(set(table.values()))
    for shard in shards:
        if "/" in shard or "\\" in shard or not (directory / shard).is_file():
            raise InputError(f"{index} names a shard that is missing: {shard[:80]!r}")
    return shards
