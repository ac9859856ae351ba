"""The parts of a registry on the Hub that visitors and other libraries see: the card, and the usual files of one model.

The card (README.md) has a section for each model between two marks. A push rewrites its own model's section and nothing
else, so that text of people, and sections of other models, stay.

`reg push --layout hub` writes the usual layout of one model beside the registry: `config.json`, the tokenizer, `onnx/...`,
from its newest release. `layout.json` remembers each file that was written, so every later commit to that model's log moves
the files with it. A file that was not written here is never replaced.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete

from onnxreg.registry.store import streams
from onnxreg.registry.store.hub_client import (
    CARD,
    LAYOUT,
    CommitSnapshot,
    Operation,
    addition,
    parse_url,
)
from onnxreg.registry.store.layout import index_path, keys_of
from onnxreg.registry.store.protocol import MissingBlobError, TreeFile
from onnxreg.schema.core.canonical import Record, decode_json
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.files import VALUE_ERRORS
from onnxreg.schema.core.ref import POLICY_LOG, check_path
from onnxreg.schema.core.units import format_size
from onnxreg.schema.formats import hub_layout
from onnxreg.schema.formats.hub_layout import LayoutFile
from onnxreg.schema.log.state import State
from onnxreg.schema.manifest.manifest import Manifest

ATTRIBUTES = ".gitattributes"
LFS = "filter=lfs diff=lfs merge=lfs -text"
LFS_PATTERNS = ("*.onnx", "*.ort", "*.onnx_data", "*.onnx.data", "tokenizer.json")
"""Files of a layout that may be large: in LFS they are the object of their blob."""
HUB_FILES = frozenset({ATTRIBUTES, LAYOUT, CARD, ".gitignore", "LICENSE", "LICENSE.md", "LICENSE.txt"})
"""Files of a repository that do not belong to the registry."""
RESERVED_NAMES = HUB_FILES | {"blobs", "index", "gc", "local", "registry.json", index_path(POLICY_LOG)}
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)^---[ \t]*\r?\n", re.DOTALL | re.MULTILINE)
EMPTY_CARD = """---
library_name: onnxreg
tags:
- onnx
- onnxreg
---

# ONNX models

A registry of exported ONNX models: every file under `blobs/` is named by its SHA-256, every move of a name is on record.
"""


class RepositoryLayout(Record, frozen=True):
    """`layout.json`: the model whose newest release is shown, and the files and keys of the card that were written."""

    name: str
    files: dict[str, Digest] = {}
    card: dict[str, Any] = {}

    @classmethod
    def of_commit(cls, at: CommitSnapshot) -> "RepositoryLayout | None":
        """The layout of a commit; None if it has none. IntegrityError if `layout.json` is malformed."""
        data = at.read(LAYOUT)
        if data is None:
            return None
        try:
            layout = decode_json(data, cls, LAYOUT)
            if any(is_reserved(check_path(path)) for path in layout.files):
                raise InputError("it lists a file of the registry")
        except InputError as error:
            raise IntegrityError(
                f"{LAYOUT} is damaged: {error.message}", "delete it there, then push again with --layout hub"
            ) from error
        return layout

    @classmethod
    def of_model(cls, at: CommitSnapshot, name: str, is_asked: bool) -> "RepositoryLayout | None":
        """The layout to bring up to date with a commit to a model's log; None if it has none, and none `is_asked` for.

        InputError if one is asked for, and the repository has the layout of another model.
        """
        current = cls.of_commit(at)
        if current is None:
            return cls(name=name) if is_asked else None
        if current.name == name:
            return current
        if is_asked:
            raise InputError(
                f"the repository has the layout of {current.name} already",
                "push each model that other libraries load to a repository of its own",
            )
        return None


def is_reserved(path: str) -> bool:
    """True for a path that is part of the registry or of the repository itself."""
    return path.startswith(".") or path in RESERVED_NAMES or path.partition("/")[0] in RESERVED_NAMES


def attributes(at: CommitSnapshot) -> list[Operation]:
    """The change to `.gitattributes` that puts the large files of a layout into LFS; empty if it has the rules."""
    lines = (at.read(ATTRIBUTES) or b"").decode(errors="replace").splitlines()
    missing = [rule for pattern in LFS_PATTERNS if (rule := f"{pattern} {LFS}") not in lines]
    return [CommitOperationAdd(ATTRIBUTES, "\n".join([*lines, *missing, ""]).encode())] if missing else []


def changes(
    at: CommitSnapshot, name: str, index: bytes, url: str, staged: Mapping[Digest, Path], is_asked: bool
) -> list[Operation]:
    """The changes to the layout and the card of a repository when a model's index file becomes `index`.

    `staged` are the files of blobs that this commit adds. A layout that cannot be written stops only a push that asks
    for it: yanks must reach the log.
    """
    try:
        state = State.decode(index.partition(b"\n")[0])
    except InputError:
        return []
    try:
        layout = RepositoryLayout.of_model(at, name, is_asked)
        if layout is not None:
            return _layout_changes(at, layout, state, url, staged)
    except (InputError, IntegrityError, MissingBlobError):
        if is_asked:
            raise
    return _card_change(at, state, url)


def _layout_changes(
    at: CommitSnapshot, layout: RepositoryLayout, state: State, url: str, staged: Mapping[Digest, Path]
) -> list[Operation]:
    """The changes after which the repository has the files and the card of a layout; what it has is not sent again.

    InputError, listing them, if files would be replaced or deleted that were not written here, or that somebody changed.
    """
    files: dict[str, LayoutFile] = {}
    metadata: Mapping[str, Any] = {}
    about: tuple[str | None, Sequence[str]] = None, ()
    if (version := state.newest_release()) is not None:
        entry = state.versions[version]
        data = _read_blob(at, entry.manifest, staged, url)
        manifest, verdicts = Manifest.decode(data), state.verdicts(entry)
        states = {
            item.path: verdicts.get(item.digest, item.certification.state) for item in manifest.artifacts
        }
        files = hub_layout.layout(manifest, entry.manifest, len(data), states, entry.held)
        files = {path: file for path, file in files.items() if not is_reserved(path)}
        metadata = hub_layout.card_metadata(manifest, files)
        about = manifest.description, hub_layout.loading(parse_url(url).id, manifest, files)
    written = layout.files
    present = at.entries([*written, *files])
    intact = {path for path in written if path in present and _has(at, present[path], written[path])}
    if foreign_paths := sorted(present.keys() - intact):
        raise InputError(
            f"the repository has files that the layout would replace: {', '.join(foreign_paths[:5])}",
            "move them away there, or push to another repository",
        )
    operations: list[Operation] = [
        _second_path(at, file, staged, url)
        for path, file in files.items()
        if path not in intact or written[path] != file.digest
    ]
    outdated = [path for path in written if path not in files and path in present]
    operations += [CommitOperationDelete(path, is_folder=False) for path in outdated]
    new = layout.replace(files={path: file.digest for path, file in files.items()}, card=dict(metadata))
    if at.read(LAYOUT) != new.encode():
        operations.append(CommitOperationAdd(LAYOUT, new.encode()))
    return [*operations, *_card_change(at, state, url, *about, metadata, layout.card)]


def _has(at: CommitSnapshot, entry: TreeFile, digest: Digest) -> bool:
    """True if a file of a commit still has the bytes that were written."""
    if entry.token == digest.hex or len(entry.token) == len(digest.hex) or entry.size is None:
        return entry.token == digest.hex
    data = at.read(entry.path)
    return data is not None and Digest.of(data) == digest


def _read_blob(at: CommitSnapshot, digest: Digest, staged: Mapping[Digest, Path], url: str) -> bytes:
    if digest in staged:
        return staged[digest].read_bytes()
    data = next(filter(None, (at.read(key.path) for key in keys_of(digest))), None)
    if data is None:
        raise MissingBlobError(digest, url)
    streams.check(Digest.of(data), digest, f"blob {digest}")
    return data


def _second_path(at: CommitSnapshot, file: LayoutFile, staged: Mapping[Digest, Path], url: str) -> Operation:
    if file.digest in staged:
        return addition(file.path, file.digest, staged[file.digest])
    present = at.blobs(key.path for key in keys_of(file.digest))
    if not present:
        raise MissingBlobError(file.digest, url)
    return CommitOperationCopy(min(present), file.path)


def _card_change(
    at: CommitSnapshot,
    state: State,
    url: str,
    description: str | None = None,
    loading: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    written: Mapping[str, Any] | None = None,
) -> list[Operation]:
    """The change of the card, if there is one: the model's section, and the metadata. A card that is not text stays."""
    data = at.read(CARD) or b""
    try:
        text = data.decode() or EMPTY_CARD
    except UnicodeDecodeError:
        return []
    begin, end = f"<!-- onnxreg {state.name} -->", f"<!-- /onnxreg {state.name} -->"
    lines = [begin, *_section(state, url, description), *(["", *loading] if loading else []), end]
    block = "\n".join(lines)
    section = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    card, count = section.subn(lambda _: block, text, count=1)
    card = card if count else f"{text.rstrip()}\n\n{block}\n"
    if metadata or written:
        card = described(card, metadata or {}, written or {})
    return [CommitOperationAdd(CARD, card.encode())] if card.encode() != data else []


def described(card: str, metadata: Mapping[str, Any], written: Mapping[str, Any]) -> str:
    """The card with this metadata in place of what was `written` before; the keys of people stay.

    Its metadata is written anew as YAML, by itself: `ModelCard` of huggingface_hub leaves out keys that are null, and
    changes a `model-index`. Unchanged if nothing else is to be said, or if its metadata cannot be read.
    """
    import yaml

    match = _FRONT_MATTER.match(card)
    try:
        value = yaml.safe_load(match[1]) if match else {}
    except (yaml.YAMLError, RecursionError, *VALUE_ERRORS):
        return card
    if not isinstance(value, dict):
        return card
    of_people = {key: item for key, item in value.items() if key not in written or written[key] != item}
    new = {**of_people, **{key: item for key, item in metadata.items() if key not in of_people}}
    text = yaml.safe_dump(new, sort_keys=False, allow_unicode=True)
    return card if new == value else f"---\n{text}---\n{card[match.end() :] if match else card}"


def _section(state: State, url: str, description: str | None) -> Iterator[str]:
    listed_versions = [
        version
        for version in sorted(state.summaries, key=lambda version: version.precedence, reverse=True)
        if not (entry := state.versions.get(version)) or not entry.dropped
    ]
    yield from (f"## {state.name}", "", *((cell(description), "") if description else ()))
    if listed_versions:
        yield from ("| version | artifact | precision | size | certification |", "|---|---|---|---:|---|")
    for version in listed_versions:
        summary, entry = state.effective_summary(version), state.versions.get(version)
        notes = sorted(tag for tag, channel in state.channels.items() if channel.version == version)
        if entry is not None and (status := entry.status(summary)):
            notes.append(status)
        label = f"{version} ({', '.join(notes)})" if notes else str(version)
        for artifact, size in summary.downloads(entry.held if entry else None) if summary else ():
            cells = (label, artifact.format, artifact.precision, format_size(size), artifact.state)
            yield f"| {' | '.join(map(cell, cells))} |"
    yield from ("", f"All versions: `reg log {state.name}`")
    newest = f":{listed_versions[0]}" if listed_versions else ""
    yield from ("", "```", f"reg pull {state.name}{newest} {url}", "```")


def cell(text: str) -> str:
    """Text that stays inside its cell: no markup of a manifest reaches the page."""
    plain = re.sub(r"[\s\x00-\x1f]+", " ", text)
    return re.sub(r"([\\|`*_<>\[\]&#])", r"\\\1", plain)
