"""Publishing on this machine: a draft's files into the store, then its manifest into the model's log."""

import threading
from collections.abc import Collection
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from onnxreg.registry.backends.local import LocalRemote
from onnxreg.registry.blobs import read_blob
from onnxreg.registry.hashing import describe, piece_hasher
from onnxreg.registry.history.commit import commit
from onnxreg.registry.history.ledger import Ledger
from onnxreg.registry.history.references import refers_to
from onnxreg.registry.history.stamp import stamp
from onnxreg.registry.moving.copying import run_parallel
from onnxreg.registry.standing import newest
from onnxreg.registry.storage import Push
from onnxreg.registry.versions import Published
from onnxreg.schema import canonical
from onnxreg.schema.digest import Descriptor, Digest
from onnxreg.schema.draft import Draft
from onnxreg.schema.errors import ConflictError, NotFoundError
from onnxreg.schema.events import Hold, Publish
from onnxreg.schema.manifest import Manifest
from onnxreg.schema.ref import check_name
from onnxreg.schema.summary import operator_set
from onnxreg.schema.version import Version

FIRST = Version(0, 1, 0)


@dataclass(frozen=True)
class Adding:
    """What is published, and by whom. Without a `version`: the next patch after the newest, or 0.1.0."""

    store: LocalRemote
    actor: str | None
    version: Version | None = None
    reason: str | None = None

    def add(self, draft: Draft) -> Published:
        """Publish a draft; see `Registry.add`."""
        check_name(draft.name)
        with self.store.push() as push:
            manifest = draft.manifest(_store_files(push, draft))
            data = manifest.encode()
            canonical.check_size(data, f"the manifest of {draft.name}")
            push.put(BytesIO(data))
            for artifact in manifest.artifacts:
                operators = operator_set(artifact)
                if operators is not None:
                    push.put(BytesIO(operators))
            return self._publish(push, manifest, data)

    def add_again(self, digest: Digest) -> Published | None:
        """Publish a manifest that is here already; None where it, or a file that it names, is not."""
        try:
            data = read_blob(self.store, digest)
            manifest = Manifest.decode(data)
            with self.store.push() as push:
                return self._publish(push, manifest, data)
        except NotFoundError:
            return None

    def _publish(self, push: Push, manifest: Manifest, data: bytes) -> Published:
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

        commit(self.store, push, name, change, _InMemory({digest: data}))
        return Published(name, version, digest, manifest, data, new)


def _store_files(push: Push, draft: Draft) -> dict[str, Descriptor]:
    """Move the draft's files into the push, several at a time; the descriptor of each path."""

    def store(path: str) -> Descriptor:
        hasher = piece_hasher((draft.root / path).stat().st_size)
        return describe(*push.put_file(draft.root / path, hasher), hasher)

    paths = draft.paths()
    return dict(zip(paths, run_parallel(store, paths, threading.Event()), strict=True))


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
