"""Publish on this machine: store a draft's files, then append its manifest to the model's log.

A file with the same state as when it was added before is not read and hashed again: `known-files/<registry id>.json` in
the user's state directory has one line for each file, the latest last. If it is lost or damaged, this costs only time.
"""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxreg.registry.log.commit import Bring, commit, load
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.log.yanked_bytes import check_not_yanked, yank_of
from onnxreg.registry.publish.existing import newest, published_as
from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import MAX_DOCUMENT_BYTES, Push
from onnxreg.registry.store.streams import describe, measure, piece_hasher
from onnxreg.registry.support.actor import stamp
from onnxreg.registry.support.disk import read_bounded, regular_size, replace_file
from onnxreg.registry.support.environment import state_directory
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.schema.core import canonical
from onnxreg.schema.core.descriptor import Descriptor, Pieces
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, ConflictError, InputError, NotFoundError, RegError
from onnxreg.schema.core.file_state import FileState
from onnxreg.schema.core.ref import Version, check_name
from onnxreg.schema.log.events import Hold, Publish
from onnxreg.schema.log.summary import artifact_states, operator_set, verdicts_of
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest

FIRST_VERSION = Version(0, 1, 0)
MAX_KNOWN_FILES = 10_000
"""Files in the cache."""
KnownFile = tuple[FileState, Descriptor]
"""A file's state when it was read, and its descriptor."""


@dataclass(frozen=True)
class Publisher:
    """Publisher of drafts. Without a `version`: the next patch after the newest, or 0.1.0; nothing is published if a
    version has the manifest already.

    `look` gets the model's name before anything is stored, and may refuse. Artifacts of yanked versions are refused
    without `yanked_bytes`.
    """

    store: DirectoryRegistry
    actor: str | None
    look: Callable[[str], None]
    version: Version | None = None
    reason: str | None = None
    yanked_bytes: bool = False

    def add(self, draft: Draft) -> PublishedVersion:
        """Publish a draft; see `Registry.add`."""
        self.look(check_name(draft.name))
        with self.store.push() as push:
            known_files = KnownFiles(state_directory() / "known-files" / f"{self.store.registry_id}.json")
            files, reports = _DraftFiles(self.store, push, draft, known_files), _reports(draft)
            manifest = draft.manifest(files.store_files())
            data = manifest.encode()
            canonical.check_size(data, f"the manifest of {draft.name}")
            published = self._publish(push, manifest, data, files.bring, reports)
        known_files.save()
        return published

    def preview(self, draft: Draft) -> PublishedVersion:
        """The version that `add` would publish, with the states of its artifacts. Nothing is stored.

        ConflictError if `add` would refuse it.
        """
        manifest = draft.manifest(measure(draft.root, draft.paths()))
        data = manifest.encode()
        digest, version, new = Digest.of(data), self.version or FIRST_VERSION, True
        with suppress(NotFoundError):  # no registry yet
            ledger, _ = load(self.store, check_name(draft.name))
            version, new = _choose_version(ledger, self.version, digest)
            if not new:
                return _published(ledger, version, manifest, data, new)
            self._check_yanked(ledger, manifest, digest)
            states = artifact_states(verdicts_of(manifest), {}, ledger.refused)
            return PublishedVersion(draft.name, version, digest, manifest, data, new, states=states)
        states = artifact_states(verdicts_of(manifest), {}, ())
        return PublishedVersion(draft.name, version, digest, manifest, data, new, states=states)

    def _check_yanked(self, ledger: Ledger, manifest: Manifest, digest: Digest) -> None:
        if not self.yanked_bytes:
            check_not_yanked(ledger, manifest, digest)

    def add_again(self, digest: Digest) -> PublishedVersion | None:
        """Publish a manifest that the store has already; None if it, or a file that it names, is missing."""
        try:
            data = read_blob(self.store, digest)
            manifest = Manifest.decode(data)
            self.look(manifest.name)
            with self.store.push() as push:
                return self._publish(push, manifest, data)
        except NotFoundError:
            return None

    def add_fetched(
        self, data: bytes, fetch: Callable[[Push, Manifest, Collection[Digest]], None]
    ) -> PublishedVersion:
        """Publish a manifest from elsewhere. `fetch` puts blobs that it names into a push."""
        manifest = Manifest.decode(data)
        self.look(check_name(manifest.name))
        with self.store.push() as push:

            def bring(missing: Collection[Digest]) -> None:
                fetch(push, manifest, missing)

            files = {file.digest for file in manifest.all_files()}
            bring(files - push.has(files))
            return self._publish(push, manifest, data, bring)

    def _publish(
        self,
        push: Push,
        manifest: Manifest,
        data: bytes,
        bring: Bring | None = None,
        reports: Iterable[bytes] = (),
    ) -> PublishedVersion:
        name, digest = manifest.name, Digest.of(data)
        version, new = FIRST_VERSION, False  # until the ledger is known
        operators = filter(None, map(operator_set, manifest.artifacts))
        documents = [data, *operators, *reports]
        files = {file.digest for file in manifest.all_files()}

        def change(ledger: Ledger) -> Collection[Digest] | None:
            nonlocal version, new
            for document in documents:
                ledger.attach(document)
            version, new = _choose_version(ledger, self.version, digest)
            about = stamp(name, self.actor, self.reason)
            if new:
                self._check_yanked(ledger, manifest, digest)
                ledger.append(Publish(**about, version=version, manifest=digest, size=len(data)))
            elif ledger.entries[version].held is not None:
                ledger.append(Hold(**about, version=version, manifest=digest))
            else:
                return None
            return files

        ledger = commit(self.store, push, name, change, bring=bring)
        return _published(ledger, version, manifest, data, new)


def _published(
    ledger: Ledger, version: Version, manifest: Manifest, data: bytes, new: bool
) -> PublishedVersion:
    """A version of the ledger."""
    entry, latest = ledger.entries[version], newest(ledger.entries)
    return PublishedVersion(
        ledger.name,
        version,
        entry.manifest,
        manifest,
        data,
        new,
        states=artifact_states(verdicts_of(manifest), entry.attested, ledger.refused),
        yank=yank_of(ledger, version),
        newer=None if latest == version else latest,
    )


class KnownFiles:
    """Descriptors of files by their path and state."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new: dict[str, KnownFile] = {}

    @cached_property
    def _known(self) -> dict[str, KnownFile]:
        return _read_known_files(self._path)

    def find(self, path: Path, state: FileState) -> Descriptor | None:
        known_state, file = self._known.get(str(path.resolve()), (None, None))
        return file if known_state == state else None

    def note(self, path: Path, state: FileState, file: Descriptor) -> None:
        """Record a file that had this state before and after it was read; call `save` at the end."""
        self._new[str(path.resolve())] = state, file

    def save(self) -> None:
        """Write the new records; earlier states of the same files are forgotten."""
        if not self._new:
            return
        previous = {path: known_file for path, known_file in self._known.items() if path not in self._new}
        latest = dict([*previous.items(), *self._new.items()][-MAX_KNOWN_FILES:])
        with suppress(OSError):
            replace_file(self._path, _encode_known_files(latest))


@dataclass(frozen=True)
class _DraftFiles:
    """Store the files of a draft in a push. `skipped` are those that the store has already."""

    store: DirectoryRegistry
    push: Push
    draft: Draft
    known_files: KnownFiles
    skipped: dict[Digest, Path] = field(default_factory=dict)

    def store_files(self) -> dict[str, Descriptor]:
        """Store all files, several at a time, and return the descriptor of each path.

        A file that stays elsewhere is not read if its state and its blob are known. InputError if it changed
        since the draft was made.
        """
        paths = self.draft.paths()
        return dict(zip(paths, run_parallel(self._store, paths), strict=True))

    def bring(self, missing: Collection[Digest]) -> None:
        """Store files that a garbage collection deleted meanwhile. NotFoundError if one is not here any more."""
        for digest in missing:
            path = self.skipped.get(digest)
            if path is None or not path.is_file() or _put(self.push, path).digest != digest:
                raise NotFoundError(
                    f"a collection deleted blob {digest} of {self.draft.name} before it was published",
                    "run the command again",
                )

    def _store(self, path: str) -> Descriptor:
        file, recorded_state = self.draft.root / path, self.draft.file_states.get(path)
        if recorded_state is None:
            return _put(self.push, file)
        settled = _check_unchanged(file, path, recorded_state)
        descriptor = self.known_files.find(file, recorded_state)
        if descriptor is not None and self._has(descriptor):
            self.skipped[descriptor.digest] = file
            return descriptor
        descriptor = _put(self.push, file)
        _check_unchanged(file, path, recorded_state)
        if settled:
            self.known_files.note(file, recorded_state, descriptor)
        return descriptor

    def _has(self, file: Descriptor) -> bool:
        return (
            bool(self.push.has([file.digest]))
            and regular_size(self.store.blob_path(file.digest)) == file.size
        )


def _reports(draft: Draft) -> list[bytes]:
    """Read the reports of verdicts that refuse, before their files move into the store."""
    verdicts = [artifact.verdict for artifact in draft.artifacts]
    paths = {
        verdict.report for verdict in verdicts if verdict.state == "refused" and verdict.report is not None
    }
    return [(draft.root / path).read_bytes() for path in sorted(paths) if (draft.root / path).is_file()]


def _put(push: Push, path: Path) -> Descriptor:
    hasher = piece_hasher(path.stat().st_size)
    return describe(*push.put_file(path, hasher), hasher)


def _check_unchanged(file: Path, path: str, recorded_state: FileState) -> bool:
    """InputError if a file changed; return True if its state may identify it later."""
    state, settled = _file_state(file)
    if state != recorded_state:
        raise InputError(
            f"{path} changed while it was read", "run the command again when nobody writes to it"
        )
    return settled


def _choose_version(ledger: Ledger, requested: Version | None, digest: Digest) -> tuple[Version, bool]:
    """Choose the version to publish; the second value is True if it is new."""
    if requested is not None:
        entry = ledger.entries.get(requested)
        if entry is not None and entry.manifest == digest and entry.gone is not None:
            raise ConflictError(
                f"{ledger.name}:{requested} is {entry.gone.how}",
                Advice("version-gone"),
            )
        return requested, entry is None or entry.manifest != digest
    if (existing := published_as(ledger.entries, digest)) is not None:
        return existing, False
    latest = newest(ledger.entries)
    return (FIRST_VERSION if latest is None else latest.next_patch()), True


def _file_state(path: Path) -> tuple[FileState, bool]:
    """A file's current state, links followed; the second value is True if it is settled."""
    state = FileState.of(os.stat(path))  # noqa: PTH116
    return state, state.is_settled(time.time_ns())


def _encode_known_files(known_files: Mapping[str, KnownFile]) -> bytes:
    lines = [
        json.dumps([path, state.to_json(), *_descriptor_to_json(file)])
        for path, (state, file) in known_files.items()
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _descriptor_to_json(file: Descriptor) -> list[Any]:
    pieces = file.pieces
    return [str(file.digest), [pieces.size, *map(str, pieces.digests)] if pieces else None]


def _read_known_files(path: Path) -> dict[str, KnownFile]:
    try:
        return dict(_decode_known_file(line) for line in read_bounded(path, MAX_DOCUMENT_BYTES).splitlines())
    except (OSError, RegError, ValueError, TypeError):
        return {}


def _decode_known_file(line: bytes) -> tuple[str, KnownFile]:
    path, encoded_state, digest, pieces = json.loads(line)
    state = FileState.from_json(encoded_state)
    parts = Pieces(int(pieces[0]), tuple(map(Digest.parse, pieces[1:]))) if pieces else None
    file = Descriptor(Digest.parse(digest), state.size, parts)
    return str(path), (state, file)
