"""The files of a checkpoint: list, hash and read them, and remove paths of this machine (`scrub`)."""

import hashlib
import json
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.canonical import Digest, directory_digest
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.core.files import HEAD_BYTES, VALUE_ERRORS, FileState, check_content

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
GENAI_CONFIG = "genai_config.json"
WEIGHTS = {"model.safetensors": "model*.safetensors*", "pytorch_model.bin": "pytorch_model*.bin*"}
"""Each file of weights, with the pattern of its shards. The first that exists is loaded."""
TOKENIZER = (
    "added_tokens.json", "chat_template.jinja", "merges.txt", "sentencepiece.bpe.model", "special_tokens_map.json",
    "spiece.model", "spm.model", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt",
)  # fmt: skip
PROCESSOR = ("preprocessor_config.json", "processor_config.json")
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
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?(?:@[\w./-]+)?")


@dataclass(frozen=True)
class Location:
    """A checkpoint on this machine. `hub_id` and `revision` (a commit) are None for a user's directory."""

    directory: Path
    hub_id: str | None = None
    revision: str | None = None


def hub_id(source: str) -> str | None:
    """Return `ORG/NAME` for a source on the Hub (`ORG/NAME[@REVISION]`); None for a directory on this machine.

    Raises InputError for an .onnx or .ort file, and NotFoundError for anything else.
    """
    if Path(source).is_dir():
        return None
    if Path(source).suffix in (".onnx", ".ort") and Path(source).is_file():
        hint = f"an ONNX file needs no task: reg export {shlex.quote(source)} --quantize --name NAME"
        raise InputError(f"{source} is a file, not the directory of a checkpoint", hint)
    if not HUB_ID.fullmatch(source) or Path(source).exists():
        hint = "give a directory or a hub id such as ORG/NAME"
        raise NotFoundError(f"no such checkpoint directory: {source}", hint)
    return source.partition("@")[0]


def matching(patterns: Sequence[str]) -> Callable[[Iterable[str]], list[str]]:
    """Return a function that selects the paths that match a pattern. `*` matches slashes, too."""
    return lambda paths: [path for path in paths if any(fnmatchcase(path, pattern) for pattern in patterns)]


def check_inside(directory: Path, file: Path) -> None:
    """Raise InputError if a file is a link out of the directory. Links to the Hub's cache are allowed."""
    real, root = Path(os.path.realpath(file)), directory.resolve()  # resolve() fails for a link to itself
    snapshots = (folder for folder in (root, *root.parents) if folder.parent.name == "snapshots")
    is_blob = any(real.parent == snapshot.parent.parent / "blobs" for snapshot in snapshots)
    if file.is_file() and not real.is_relative_to(root) and not is_blob:
        message = f"{file.relative_to(directory).as_posix()} is a link that leads out of {directory.name}"
        raise InputError(message, "replace the link by the file, or by a hard link")


def weight_files(directory: Path) -> list[str]:
    """Return the names of the files of weights that are loaded; [] if there are none.

    Raises InputError if a shard is missing, or if transformers would load other files.
    """
    ranks = (path.name for path in directory.glob("shard-*-model-*.safetensors"))  # of a training in parallel
    other = next(ranks, read_object(directory / CONFIG).get("transformers_weights"))
    if other not in (None, *WEIGHTS):
        message = f"transformers would load {str(other)[:80]}, and not the usual files of weights"
        raise InputError(message, "load the model with transformers, and save it with save_pretrained")
    for single in WEIGHTS:
        if (directory / single).is_file():
            return [single]
        index = f"{single}.index.json"
        if (directory / index).is_file():
            table = read_object(directory / index).get("weight_map")
            if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
                raise InputError(f"{index} has no weight_map")
            shards = sorted(set(table.values()))
            for shard in shards:
                if "/" in shard or "\\" in shard or not (directory / shard).is_file():
                    raise InputError(f"{index} names a shard that is missing: {shard[:80]!r}")
            return [index, *shards]
    return []


def input_files(directory: Path, code: bool) -> list[str]:
    """Return the names of the files that affect an export. With `code`, include Python files."""
    names = {CONFIG, GENERATION_CONFIG, *weight_files(directory), *TOKENIZER, *PROCESSOR}
    if code:
        names |= {path.name for path in directory.iterdir() if path.suffix == ".py"}
    return sorted(name for name in names if (directory / name).is_file())


def below(directory: Path) -> Iterator[Path]:
    """Yield every file below a directory. Raise OSError if a folder cannot be listed."""
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.is_file():
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from below(path)


def row_files(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.suffix == ".npz") if path.is_dir() else [path]


def digest_files(directory: Path, names: Iterable[str]) -> Digest:
    return directory_digest({name: digest_file(directory / name) for name in names})


def role_of(path: str) -> str:
    """Return the role of a companion by its name: config, labels, tokenizer, report, operator-config or other."""
    name = path.rpartition("/")[2]
    if name.startswith("tokenizer") and name.endswith((".json", ".model")):
        return "tokenizer"
    return "operator-config" if name.endswith(".config") else _ROLES.get(name, "other")


def digest_file(path: Path) -> Digest:
    """Return the SHA-256 of a file. It is computed again only if the file's size or times have changed."""
    with path.open("rb") as file:
        before = FileState.of(os.fstat(file.fileno()))
        if before in _known:
            return _known[before]
        settled = before.token(time.time_ns())
        check_content(file.read(HEAD_BYTES), path.name)
        file.seek(0)
        digest = Digest(hashlib.file_digest(file, "sha256").hexdigest())
        if settled and before == FileState.of(os.fstat(file.fileno())):
            _known[before] = digest
    return digest


def read_metadata(directory: Path) -> dict[str, Any]:
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


_ABSOLUTE = re.compile(
    r"(?:file://)?/[^/\0\n]+(?:/[^/\0\n]+)+/?"  # /home/jane/model: two parts or more, since "/x" may be a token
    r"|file://.+|~[^/\0\n]*/.+"
    r"|[A-Za-z]:[\\/][^\n]+|\\\\[^\\\n]+\\[^\n]+"
)
_PART = r"[^\s/\\\"'`<>|:;,()\[\]{}]+"
_BELOW = rf"(?:[\\/]{_PART})"
_USUAL = (
    rf"/(?:home|Users|root|tmp|private|var|mnt|media|Volumes|opt|srv|scratch|workspace){_BELOW}+"
    rf"|[A-Za-z]:[\\/]Users{_BELOW}+"
)
_HOME = re.compile(r"(?:file://)?/(?:home|Users)/[^/]+/?|[A-Za-z]:[\\/]Users[\\/][^\\/]+[\\/]?")
_IDENTITY = frozenset({"_name_or_path", "name_or_path", "source_model_id", "base_model"})
_TOKENS = frozenset({"added_tokens_decoder", "id2label", "label2id"})  # JSON keys whose values `scrub` keeps
_VOCABULARY = frozenset(
    {"added_tokens.json", "id2label.json", "special_tokens_map.json", "tokenizer.json", "vocab.json"}
)
"""The files with tokens or labels, which `scrub_file` leaves unchanged."""


def scrub(value: Any, name: str, *directories: Path) -> tuple[Any, list[str]]:
    """Remove absolute paths from a JSON value. Return the new value, and the places of the changes.

    A path that identifies the model becomes `name`. Any other path becomes its last part: `/home/jane/a.json` becomes
    `a.json`. Within longer texts, paths below `directories` and below usual roots are replaced.
    """
    embedded, changed = _embedded(directories), list[str]()

    def visit(value: Any, at: str) -> Any:
        if isinstance(value, str):
            is_identity = at.rpartition(".")[2] in _IDENTITY and _ABSOLUTE.fullmatch(value)
            text = name if is_identity else _scrub_text(value, embedded)
            if text != value:
                changed.append(at)
            return text
        if not isinstance(value, dict | list):
            return value
        result: dict[Any, Any] = {}
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            new: Any = _scrub_text(key, embedded) if isinstance(key, str) else key
            while new != key and (new in value or new in result):
                new += "_"
            position = f"{at}.{new}" if at else str(new)
            if new != key:
                changed.append(position)
            result[new] = child if key in _TOKENS else visit(child, position)
        return result if isinstance(value, dict) else list(result.values())

    return visit(value, ""), list(dict.fromkeys(changed))


def _scrub_text(text: str, embedded: re.Pattern[str]) -> str:
    return _last(text) if _ABSOLUTE.fullmatch(text) else embedded.sub(lambda match: _last(match[0]), text)


def _last(path: str) -> str:
    return "~" if _HOME.fullmatch(path) else re.split(r"[\\/]", path.rstrip("\\/"))[-1]


def _embedded(directories: tuple[Path, ...]) -> re.Pattern[str]:
    folders = [Path(os.path.expanduser("~")), Path.cwd(), Path(tempfile.gettempdir()), *directories]  # noqa: PTH111
    paths = {
        folder for given in folders for folder in (given.absolute(), given.resolve()) if len(folder.parts) > 1
    }
    needles = [
        re.escape(str(folder)) + (rf"(?![\w-]){_BELOW}*" if len(folder.parts) > 2 else rf"{_BELOW}+")
        for folder in sorted(paths, key=lambda folder: len(str(folder)), reverse=True)
    ]
    return re.compile(rf"(?<![\w/.~-])(?:file://)?(?:{'|'.join([*needles, _USUAL])})")


def scrub_file(
    path: Path, name: str, drop: tuple[str, ...] = (), directories: tuple[Path, ...] = ()
) -> tuple[bytes, list[str]] | None:
    """Remove paths of this machine from a JSON file or template, and comments from an operator config.

    Returns the new bytes and the places of changes, or None if there are none. `drop` are top-level keys to remove.
    """
    changed: list[str] = []
    if path.suffix == ".json" and path.name not in _VOCABULARY:
        value, changed = scrub(read_json(path), name, path.parent, *directories)
        if isinstance(value, dict):
            changed += [key for key in drop if key in value]
            value = {key: child for key, child in value.items() if key not in drop}
        text = json.dumps(value, indent=2) + "\n"
    elif path.suffix in (".jinja", ".config"):
        old = path.read_bytes().decode("utf-8", "surrogateescape")
        text, part = re.sub(r"(?m)^[ \t]*#.*\n?", "", old), "comments"
        if path.suffix == ".jinja":
            text, part = scrub(old, name, path.parent, *directories)[0], "text"
        changed = [part] * (text != old)
    return (text.encode("utf-8", "surrogateescape"), changed) if changed else None


def link_or_copy(source: Path, target: Path) -> None:
    """Link a file under another name, or copy it if no link is possible. Raise FileExistsError if `target` exists."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except FileExistsError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def copy_scrubbed(source: Path, target: Path, name: str, *directories: Path) -> None:
    scrubbed = scrub_file(source, name, directories=directories)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(scrubbed[0] if scrubbed else source.read_bytes())


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; {} if the file is missing. Raise InputError if it is too large or not a JSON object."""
    value = read_json(path) if path.is_file() else {}
    if not isinstance(value, dict):
        raise InputError(f"{path.parent.name}/{path.name} is not a JSON object", "save the model again")
    return value


def read_json(path: Path) -> Any:
    """Read a JSON file. Raise InputError if it is too large or not JSON."""
    if path.stat().st_size > MAX_DOCUMENT_BYTES:
        raise InputError(f"{path.name} is too large for JSON: more than {MAX_DOCUMENT_BYTES >> 20} MiB")
    data = path.read_bytes()
    check_content(data[:HEAD_BYTES], path.name)
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name} is not valid JSON: {str(error)[:200]}") from error
