"""A registry in a repository on the Hugging Face Hub: `hf://ORG/NAME[@BRANCH]`.

**A push is one commit** with its blobs, the index file and the card. The Hub refuses the commit (412) if its parent is
no longer the newest commit. In the parent, the push checks that the index file has not changed since it was read, that
the needed blobs exist, and that no collector condemned them. If another commit comes first, the push checks all of this
again. A collector condemns keys in a commit of its own. Every later push sees the condemned keys, so a push need not be
announced by an intent.

**Reads** are from one pinned commit. The first read, each write, each listing and each lost race pin the newest commit.

**The card** (README.md) has a section for each model, between two comments. A push rewrites only its model's section.

**The layout**: `reg push --layout hub` also writes one model's newest release at the paths from which other libraries
load. `layout.json` lists these files, and later commits to the model's log update them. No other file is replaced.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete

from onnxreg.registry.store import protocol, streams
from onnxreg.registry.store.directory import StagedBlobs, temporary
from onnxreg.registry.store.hub_client import (
    CARD,
    IDENTITY,
    LAYOUT,
    CommitSnapshot,
    HubClient,
    HubStore,
    NoRepositoryError,
    Operation,
    addition,
    is_file,
    parse_url,
    token_of,
)
from onnxreg.schema.core.canonical import Digest, Record, decode_json
from onnxreg.schema.core.errors import InputError, IntegrityError, LostRaceError, about
from onnxreg.schema.core.files import VALUE_ERRORS
from onnxreg.schema.core.ref import POLICY_LOG, check_path
from onnxreg.schema.core.units import format_size
from onnxreg.schema.formats import hub_layout
from onnxreg.schema.formats.hub_layout import LayoutFile
from onnxreg.schema.log.state import State
from onnxreg.schema.manifest.manifest import Manifest

ATTRIBUTES = ".gitattributes"
LFS = "filter=lfs diff=lfs merge=lfs -text"
LFS_RULE = f"blobs/** {LFS}"
LARGE_FILES = ("*.onnx", "*.ort", "*.onnx_data", "*.onnx.data", "tokenizer.json")
LAYOUT_RULES = tuple(f"{pattern} {LFS}" for pattern in LARGE_FILES)
"""The rules that put a layout's large files into Git LFS. LFS stores a file and the blob with the same bytes once."""
HUB_FILES = frozenset({ATTRIBUTES, LAYOUT, CARD, ".gitignore", "LICENSE", "LICENSE.md", "LICENSE.txt"})
"""The files of a repository that do not belong to the registry."""
RESERVED = {*HUB_FILES, "blobs", "index", "gc", "local", "registry.json", protocol.index_path(POLICY_LOG)}
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
    """The content of `layout.json`: a model's name, the layout's files, the metadata that onnxreg put on the card."""

    name: str
    files: dict[str, Digest] = {}
    card: dict[str, Any] = {}

    @classmethod
    def of_commit(cls, at: CommitSnapshot) -> "RepositoryLayout | None":
        """Return the layout of a commit, or None. Raises IntegrityError if `layout.json` is malformed."""
        data = at.read(LAYOUT)
        if data is None:
            return None
        hint = "delete it there, then push again with --layout hub"
        with about(f"{LAYOUT} is damaged", IntegrityError, hint):
            layout = decode_json(data, cls, LAYOUT)
            if any(is_reserved(check_path(path)) for path in layout.files):
                raise InputError("it lists a file of the registry")
        return layout

    @classmethod
    def of_model(cls, at: CommitSnapshot, name: str, create: bool) -> "RepositoryLayout | None":
        """Return this model's layout, if the repository has one. If `create` is set, a missing layout is made.

        Raises InputError if `create` is set and the repository has the layout of another model.
        """
        current = cls.of_commit(at)
        if current is None:
            return cls(name=name) if create else None
        if current.name == name:
            return current
        if create:
            hint = "push each model that other libraries load to a repository of its own"
            raise InputError(f"the repository has the layout of {current.name} already", hint)
        return None


class HubRegistry(protocol.RegistryStore):
    store: HubStore
    note_kinds = frozenset[protocol.Kind]({"condemned"})  # pushes need no intents

    def __init__(self, hub: HubClient, known_id: str | None = None) -> None:
        super().__init__(HubStore(hub), known_id)
        self._shown: str | None = None

    def blob_url(self, digest: Digest) -> str:
        return self.store.hub.file_url(protocol.BlobKey(digest).path, self.store.revision)

    def read_file(
        self, path: str, cached: protocol.StoredObject | None = None
    ) -> protocol.StoredObject | None:
        if cached is None:
            self.store.refresh()
        return super().read_file(path, cached)

    def files(self) -> Iterator[protocol.TreeFile]:
        """List the registry's files in the newest commit. `HUB_FILES` and files for other libraries are left out."""
        at = self.store.refresh()
        layout = RepositoryLayout.of_commit(at)
        others = HUB_FILES | (layout.files.keys() if layout else set())
        return iter(sorted(entry for entry in at.tree() if entry.path not in others))

    @contextmanager
    def push(self) -> Iterator["HubPush"]:
        protocol.check_writer(self.identity, self.url)
        with temporary() as directory:
            yield HubPush(self.store, directory, self._shown)

    def choose_layout(self, name: str) -> None:
        """Make later pushes write this model's layout too. Raises InputError if the layout is of another model."""
        self._shown = name
        RepositoryLayout.of_model(self.store.refresh(), name, True)
        self.store.transact("Prepare the layout", lambda at, _: attributes(at, *LAYOUT_RULES))

    def refresh_layout(self, name: str) -> None:
        """Update the layout of a model, if the last push did not update it."""
        index = self.read_file(protocol.index_path(name))
        if index is not None:
            with self.push() as push:
                self.store.transact(f"Show {name}", lambda at, _: push.model_operations(at, name, index.data))


class HubPush(StagedBlobs, protocol.Push):
    """A push whose blobs wait in a local directory until `publish` sends them, with the index file, in one commit."""

    def __init__(self, files: HubStore, directory: Path, shown_name: str | None = None) -> None:
        super().__init__(directory, files.url)
        self._shown = shown_name
        self.files = files
        self._relied: set[Digest] = set()

    def avoid(self, condemned: Collection[protocol.BlobKey]) -> None:
        super().avoid(condemned)
        self._relied = set()

    def _paths(self, digests: Iterable[Digest]) -> dict[str, Digest]:
        return {protocol.usable_key(digest, self.condemned).path: digest for digest in digests}

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        requested = set(digests)
        paths = self._paths(requested - self._staged.keys())
        present = {paths[path] for path in self.files.has(paths.keys() - {key.path for key in self.damaged})}
        self._relied |= present
        return present | (requested & self._staged.keys())

    def fetch(self, digest: Digest, size: int, open_at: protocol.OpenAt, path: Path | None = None) -> int:
        with open_at(0) as stream:
            if path is None:
                return self.put(stream, digest)[1]
            actual, count = streams.pump(stream, None)
        streams.check(actual, digest, f"blob {digest}")
        self._staged[digest] = path
        return count

    def flush(self) -> None:
        self.files.transact(f"Restore {len(self._staged)} blobs", lambda at, _: self._additions(at))

    def _additions(self, at: CommitSnapshot) -> list[Operation]:
        paths = self._paths(self._staged)
        return [
            addition(path, paths[path], self._staged[paths[path]])
            for path in sorted(paths.keys() - (at.blobs(paths) - {key.path for key in self.damaged}))
        ]

    def model_operations(self, at: CommitSnapshot, name: str, index: bytes) -> list[Operation]:
        """Return the operations that update the model's layout and the model card.

        If `layout.json` is wrong, an error is raised for the model of `choose_layout`. For another model, only the card
        is updated.
        """
        try:
            state = State.decode(index.partition(b"\n")[0])
        except InputError:
            return []
        create = name == self._shown
        try:
            layout = RepositoryLayout.of_model(at, name, create)
            if layout is not None:
                return self._layout_changes(at, layout, state)
        except (InputError, IntegrityError, protocol.MissingBlobError):
            if create:
                raise
        return self._card_change(at, state)

    def _layout_changes(self, at: CommitSnapshot, layout: RepositoryLayout, state: State) -> list[Operation]:
        files: dict[str, LayoutFile] = {}
        metadata: Mapping[str, Any] = {}
        loading: Sequence[str] = ()
        description = None
        if (version := state.newest_release()) is not None:
            entry = state.versions[version]
            data = self._read_blob(at, entry.manifest)
            manifest = Manifest.decode(data)
            states = {path: item.state for path, item in state.artifact_states(manifest, entry).items()}
            files = hub_layout.layout(manifest, entry.manifest, len(data), states, entry.held)
            files = {path: file for path, file in files.items() if not is_reserved(path)}
            metadata = hub_layout.card_metadata(manifest, files)
            loading = hub_layout.loading(parse_url(self._url).id, manifest, files)
            description = manifest.description
        written = layout.files
        present = at.entries([*written, *files])
        intact = {path for path in written if path in present and _has(at, present[path], written[path])}
        if foreign_paths := sorted(present.keys() - intact):
            raise InputError(
                f"the repository has files that the layout would replace: {', '.join(foreign_paths[:5])}",
                "move them away there, or push to another repository",
            )
        operations: list[Operation] = []
        for path, file in files.items():
            if path in intact and written[path] == file.digest:
                continue
            if file.digest in self._staged:
                operations.append(addition(path, file.digest, self._staged[file.digest]))
            elif present_keys := at.blobs(key.path for key in protocol.keys_of(file.digest)):
                operations.append(CommitOperationCopy(min(present_keys), path))
            else:
                raise protocol.MissingBlobError(file.digest, self._url)
        outdated = [path for path in written if path not in files and path in present]
        operations += [CommitOperationDelete(path, is_folder=False) for path in outdated]
        new = layout.replace(files={path: file.digest for path, file in files.items()}, card=dict(metadata))
        if at.read(LAYOUT) != new.encode():
            operations.append(CommitOperationAdd(LAYOUT, new.encode()))
        return [*operations, *self._card_change(at, state, description, loading, metadata, layout.card)]

    def _read_blob(self, at: CommitSnapshot, digest: Digest) -> bytes:
        if digest in self._staged:
            return self._staged[digest].read_bytes()
        data = next(filter(None, (at.read(key.path) for key in protocol.keys_of(digest))), None)
        if data is None:
            raise protocol.MissingBlobError(digest, self._url)
        streams.check(Digest.of(data), digest, f"blob {digest}")
        return data

    def _card_change(
        self,
        at: CommitSnapshot,
        state: State,
        description: str | None = None,
        loading: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        written: Mapping[str, Any] | None = None,
    ) -> list[Operation]:
        data = at.read(CARD) or b""
        try:
            text = data.decode() or EMPTY_CARD
        except UnicodeDecodeError:
            return []
        begin, end = f"<!-- onnxreg {state.name} -->", f"<!-- /onnxreg {state.name} -->"
        lines = [begin, *_section(state, self._url, description), *(["", *loading] if loading else []), end]
        block = "\n".join(lines)
        section = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        card, count = section.subn(lambda _: block, text, count=1)
        card = card if count else f"{text.rstrip()}\n\n{block}\n"
        if metadata or written:
            card = replace_metadata(card, metadata or {}, written or {})
        return [CommitOperationAdd(CARD, card.encode())] if card.encode() != data else []

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        path = protocol.index_path(name)

        def decide(at: CommitSnapshot, is_doubtful: bool) -> list[Operation]:
            relied = self._paths(self._relied - self._staged.keys()).keys()
            staged = self._paths(self._staged).keys()
            entry = at.entries([path, *sorted(relied | staged)]).get(path)
            if is_doubtful and is_file(entry, token_of(index)):
                return []
            if not is_file(entry, expected):
                raise LostRaceError(f"the index of {name} changed meanwhile")
            if not relied <= at.blobs(relied) or at.condemned() & (relied | staged):
                raise LostRaceError(f"a collector came between the push of {name} and its blobs")
            shown = [] if name == POLICY_LOG else self.model_operations(at, name, index)
            return [*self._additions(at), CommitOperationAdd(path, index), *shown]

        self.files.transact(f"Publish {name}", decide)


def open_hub(
    url: str, create: bool = False, mirror_of: str | None = None, known_id: str | None = None
) -> HubRegistry:
    """Open the registry at a URL. If `create` is set and the registry is missing, create it.

    Raises InputError if the repository holds files but is not a registry.
    """
    hub = HubClient(parse_url(url), known_id)
    registry = HubRegistry(hub, known_id)
    if not create:
        return registry
    try:
        registry.store.refresh()
    except NoRepositoryError:
        hub.create()
    identity = protocol.new_identity(mirror_of, mirror_of is not None)

    def decide(at: CommitSnapshot, _: bool) -> list[Operation]:
        if at.read(IDENTITY) is not None:
            return []
        paths = [entry.path for entry in hub.tree(at.revision, recursive=False)]
        if foreign_paths := [path for path in paths if path not in HUB_FILES]:
            hint = "name a registry, or a repository that is empty or does not exist yet"
            raise InputError(f"{registry.url} is not a registry and holds {foreign_paths[0]}", hint)
        return [*attributes(at, LFS_RULE), CommitOperationAdd(IDENTITY, identity)]

    registry.store.transact("Create the registry", decide)
    return registry


def is_reserved(path: str) -> bool:
    """True if a path is reserved for the registry's files or the repository's own files."""
    return path.startswith(".") or path in RESERVED or path.partition("/")[0] in RESERVED


def attributes(at: CommitSnapshot, *rules: str) -> list[Operation]:
    """Return the operation that adds the missing rules to `.gitattributes`, or [] if none is missing."""
    lines = (at.read(ATTRIBUTES) or b"").decode(errors="replace").splitlines()
    missing = [rule for rule in rules if rule not in lines]
    return [CommitOperationAdd(ATTRIBUTES, "\n".join([*lines, *missing, ""]).encode())] if missing else []


def _has(at: CommitSnapshot, entry: protocol.TreeFile, digest: Digest) -> bool:
    if entry.token == digest.hex or len(entry.token) == len(digest.hex) or entry.size is None:
        return entry.token == digest.hex
    data = at.read(entry.path)
    return data is not None and Digest.of(data) == digest


def replace_metadata(card: str, metadata: Mapping[str, Any], written: Mapping[str, Any]) -> str:
    """Put `metadata` into a model card, and return the new card.

    `written` is the metadata that the last push put into the card. It is replaced, except keys that people have changed
    since then. A card that cannot be read is returned unchanged.
    """
    import yaml

    match = _FRONT_MATTER.match(card)  # `ModelCard` drops null keys and changes `model-index`
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
        states = [artifact.state for artifact in summary.artifacts] if summary else []
        notes = sorted(tag for tag, channel in state.channels.items() if channel.version == version)
        if entry is not None and (status := entry.status(states)):
            notes.append(status)
        label = f"{version} ({', '.join(notes)})" if notes else str(version)
        for artifact, size in summary.downloads(entry.held if entry else None) if summary else ():
            cells = (label, artifact.format, artifact.precision, format_size(size), artifact.state)
            yield f"| {' | '.join(map(cell, cells))} |"
    yield from ("", f"All versions: `reg log {state.name}`")
    newest = f":{listed_versions[0]}" if listed_versions else ""
    yield from ("", "```", f"reg pull {state.name}{newest} {url}", "```")


def cell(text: str) -> str:
    """Escape text for a cell of a Markdown table, so that markup in a manifest has no effect on the page."""
    plain = re.sub(r"[\s\x00-\x1f]+", " ", text)
    return re.sub(r"([\\|`*_<>\[\]&#])", r"\\\1", plain)
