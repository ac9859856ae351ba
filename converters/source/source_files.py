"""The files of a checkpoint that take part in an export, their digests, and its model card."""

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest, directory_digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.files import HEAD_BYTES, VALUE_ERRORS, FileState, check_content

CONFIG = "config.json"
GENAI_CONFIG = "genai_config.json"
"""The settings of onnxruntime-genai, in the folder of a graph."""
SAFE_WEIGHTS = ("model.safetensors.index.json", "model.safetensors")
PICKLE_WEIGHTS = ("pytorch_model.bin.index.json", "pytorch_model.bin")
# fmt: off
TOKENIZER = (
    "added_tokens.json", "chat_template.jinja", "merges.txt", "sentencepiece.bpe.model", "special_tokens_map.json",
    "spiece.model", "spm.model", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt",
)
# fmt: on
_ROLES = {
    **dict.fromkeys((name for name in TOKENIZER if name != "chat_template.jinja"), "tokenizer"),
    CONFIG: "config",
    "id2label.json": "labels",
    "recall_delta.json": "report",
}
_known: dict[FileState, Digest] = {}
CARD = "README.md"
MAX_CARD_BYTES = 2**20
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)


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
        names |= {path.name for path in directory.iterdir() if path.suffix == ".py"}
    return sorted(name for name in names if (directory / name).is_file())


def below(directory: Path) -> Iterator[Path]:
    """Every path below a directory. OSError if one of its folders cannot be listed: `rglob` would leave it out."""
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from below(path)


def row_files(folder: Path) -> list[Path]:
    """The files with rows in a folder, sorted. OSError if it cannot be listed."""
    return sorted(path for path in folder.iterdir() if path.suffix == ".npz")


def digest_files(directory: Path, names: Iterable[str]) -> Digest:
    """The digest of a directory that holds these files of another one, see `directory_digest`."""
    return directory_digest({name: digest_file(directory / name) for name in names})


def role_of(path: str) -> str:
    """The role of a companion by its file name: config, labels, tokenizer, report, operator-config or other."""
    name = path.rpartition("/")[2]
    if name.startswith("tokenizer") and name.endswith((".json", ".model")):
        return "tokenizer"
    return "operator-config" if name.endswith(".config") else _ROLES.get(name, "other")


def digest_file(path: Path) -> Digest:
    """The SHA-256 of a file's bytes; one whose state is known, and was settled then, is not read again.

    What another process writes through a memory map meanwhile is not noticed. InputError as `check_content`.
    """
    with path.open("rb") as file:
        before = FileState.of(os.fstat(file.fileno()))
        if before in _known:
            return _known[before]
        settled = before.is_settled(time.time_ns())
        check_content(file.read(HEAD_BYTES), path.name)
        file.seek(0)
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


def _shards(directory: Path, index: str) -> list[str]:
    data = (directory / index).read_bytes()
    check_content(data[:HEAD_BYTES], index)
    value = canonical.decode(data, index)
    table = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise InputError(f"{index} has no weight_map")
    shards = sorted(set(table.values()))
    for shard in shards:
        if "/" in shard or "\\" in shard or not (directory / shard).is_file():
            raise InputError(f"{index} names a shard that is missing: {shard[:80]!r}")
    return shards
