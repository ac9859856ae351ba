"""Publishing on this machine: a draft's files into the store, then its manifest into the model's log."""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

from onnxreg.registry.log.commit import Bring, commit
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.references import refers_to
from onnxreg.registry.log.stamp import stamp
from onnxreg.registry.publish.existing import newest
from onnxreg.registry.publish.known_files import KnownFiles, state_of
from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.store.blobs import read_blob
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.directory.safe_open import regular_size
from onnxreg.registry.store.hash_stream import describe, piece_hasher
from onnxreg.registry.store.protocol import Push
from onnxreg.registry.transfer.copy import run_parallel
from onnxreg.schema.core import canonical
from onnxreg.schema.core.descriptor import Descriptor
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, InputError, NotFoundError
from onnxreg.schema.core.file_state import FileState
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.events import Hold, Publish
from onnxreg.schema.log.summary import operator_set
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest

FIRST = Version(0, 1, 0)


@dataclass(frozen=True)
class Publisher:
    """What is published, and by whom. Without a `version`: the next patch after the newest, or 0.1.0.

    `look` sees the model's name before anything is stored, and may refuse.
    """

    store: DirectoryRegistry
    actor: str | None
    look: Callable[[str], None]
    version: Version | None = None
    reason: str | None = None

    def add(self, draft: Draft) -> PublishedVersion:
        """Publish a draft; see `Registry.add`."""
        self.look(check_name(draft.name))
        with self.store.push() as push:
            known = KnownFiles(self.store.root / "local" / "known-files.json")
            storing, reports = _Storing(self.store, push, draft, known), _reports(draft)
            manifest = draft.manifest(storing.store_files())
            data = manifest.encode()
            canonical.check_size(data, f"the manifest of {draft.name}")
            push.put(BytesIO(data))
            for artifact in manifest.artifacts:
                operators = operator_set(artifact)
                if operators is not None:
                    push.put(BytesIO(operators))
            published = self._publish(push, manifest, data, storing.bring, reports)
        known.save()
        return published

    def add_again(self, digest: Digest) -> PublishedVersion | None:
        """Publish a manifest that is here already; None where it, or a file that it names, is not."""
        try:
            data = read_blob(self.store, digest)
            manifest = Manifest.decode(data)
            self.look(manifest.name)
            with self.store.push() as push:
                return self._publish(push, manifest, data)
        except NotFoundError:
            return None

    def _publish(
        self,
        push: Push,
        manifest: Manifest,
        data: bytes,
        bring: Bring | None = None,
        reports: Mapping[Digest, bytes] = MappingProxyType({}),
    ) -> PublishedVersion:
        name, digest = manifest.name, Digest.of(data)
        version, new = FIRST, False  # until the ledger is known
        blobs = {digest, *refers_to(manifest)}

        def change(ledger: Ledger) -> Collection[Digest] | None:
            nonlocal version, new
            version, new = _choose_version(ledger, self.version, digest)
            about = stamp(name, self.actor, self.reason)
            if new:
                ledger.append(Publish(**about, version=version, manifest=digest, size=len(data)))
            elif ledger.entries[version].held is not None:
                ledger.append(Hold(**about, version=version, manifest=digest))
            else:
                return None
            return blobs

        commit(self.store, push, name, change, _InMemory({**reports, digest: data}), bring=bring)
        return PublishedVersion(name, version, digest, manifest, data, new)


@dataclass(frozen=True)
class _Storing:
    """Brings the files of a draft into a push. `here` are those that were left out, since the store has them."""

    store: DirectoryRegistry
    push: Push
    draft: Draft
    known: KnownFiles
    here: dict[Digest, Path] = field(default_factory=dict)

    def store_files(self) -> dict[str, Descriptor]:
        """The descriptor of each path. Several are stored at a time.

        A file that stays elsewhere is not read where its state and its blob are known. InputError where it changed since
        it was looked into.
        """
        paths = self.draft.paths()
        return dict(zip(paths, run_parallel(self._store, paths, threading.Event()), strict=True))

    def bring(self, missing: Collection[Digest]) -> None:
        """Store what a collector took away meanwhile."""
        for digest in missing:
            if digest in self.here:
                _put(self.push, self.here[digest])

    def _store(self, path: str) -> Descriptor:
        file, seen = self.draft.root / path, self.draft.seen.get(path)
        if seen is None:
            return _put(self.push, file)
        settled = _check_unchanged(file, path, seen)
        found = self.known.find(file, seen)
        if found is not None and self._has(found):
            self.here[found.digest] = file
            return found
        found = _put(self.push, file)
        _check_unchanged(file, path, seen)
        if settled:
            self.known.note(file, seen, found)
        return found

    def _has(self, file: Descriptor) -> bool:
        return (
            bool(self.push.has([file.digest]))
            and regular_size(self.store.blob_path(file.digest)) == file.size
        )


def _reports(draft: Draft) -> dict[Digest, bytes]:
    """The reports behind verdicts that refuse, read before the files are moved into the store."""
    verdicts = [artifact.verdict for artifact in draft.artifacts]
    paths = {each.report for each in verdicts if each.state == "refused" and each.report is not None}
    found = [(draft.root / path).read_bytes() for path in sorted(paths) if (draft.root / path).is_file()]
    return {Digest.of(data): data for data in found}


def _put(push: Push, path: Path) -> Descriptor:
    hasher = piece_hasher(path.stat().st_size)
    return describe(*push.put_file(path, hasher), hasher)


def _check_unchanged(file: Path, path: str, seen: FileState) -> bool:
    """Whether a file may be known again by its state, which is still as it was."""
    state, settled = state_of(file)
    if state != seen:
        raise InputError(
            f"{path} changed while it was read", "run the command again when nobody writes to it"
        )
    return settled


class _InMemory:
    """A few blobs in memory that no store has yet."""

    def __init__(self, blobs: dict[Digest, bytes]) -> None:
        self._blobs = blobs

    def has(self, digests: Any) -> set[Digest]:
        return {digest for digest in digests if digest in self._blobs}

    def open_blob(self, digest: Digest, start: int = 0) -> BytesIO:
        if digest not in self._blobs:
            raise NotFoundError(f"blob {digest} is missing", "run `reg verify` to see what else is")
        return BytesIO(self._blobs[digest][start:])


def _choose_version(ledger: Ledger, asked: Version | None, digest: Digest) -> tuple[Version, bool]:
    """The version to publish, and whether it is not there yet."""
    if asked is not None:
        held = ledger.entries.get(asked)
        if held is not None and held.manifest == digest and held.gone is not None:
            raise ConflictError(
                f"{ledger.name}:{asked} is {held.gone.how}",
                "publish under another version; a copy elsewhere brings an expired one back: reg pull --restore",
            )
        return asked, held is None or held.manifest != digest
    if not ledger.entries:
        return FIRST, True
    latest = newest(ledger.entries)
    same = ledger.entries[latest].manifest == digest and ledger.entries[latest].usable
    return (latest, False) if same else (latest.next_patch(), True)
