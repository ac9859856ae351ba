"""The signers of a witness log: the job that publishes a registry's heads in it, and the witnesses that cosign it.

The job alone holds the key of the log. Order of its writes: the pages of the map; `next`, by compare and swap, which
decides the next entry (it is the signed checkpoint to come, with the entry); the tiles and entries that follow from
it; `checkpoint`. A publisher that finds a `next` which its own key signed finishes it first. So of two publishers both
go on with one history, and what a killed one left is continued.

A witness signs the newest checkpoint of a log if that continues the last one that it signed. A signer holds a lock
from reading to writing, and writes durably before a signature leaves the machine. So it never signs two histories of
one log, even if it is killed.
"""

import hashlib
import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from onnxreg.registry.signing import PrivateKey
from onnxreg.registry.store.directory.scratch import exclusive
from onnxreg.registry.store.http import HttpStore
from onnxreg.registry.store.layout import CHECKPOINT, NEXT, WITNESS_FOLDER, page_path
from onnxreg.registry.store.open import path_of
from onnxreg.registry.store.protocol import PathReader, PathStore, RegistryReader, RegistryStore, innermost
from onnxreg.registry.support.disk import Disk, host_errors, replace_file
from onnxreg.registry.support.environment import state_directory
from onnxreg.registry.witness.heads import survey
from onnxreg.registry.witness.note_keys import cosign_text, require_signature, sign_head, valid_signatures
from onnxreg.registry.witness.witness_log import (
    StoredCheckpoint,
    WitnessLog,
    find_checkpoint,
    read_checkpoint,
)
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError, LostRaceError, NotFoundError
from onnxreg.schema.core.given_file import read_given
from onnxreg.schema.witness.merkle_map import MerkleMap
from onnxreg.schema.witness.merkle_tree import (
    EMPTY_TREE,
    TILE_WIDTH,
    encode_entries,
    entries_path,
    inclusion_proof,
)
from onnxreg.schema.witness.note import COSIGNATURE, ED25519, SignedNote, TreeHead, VerifierKey, origin_of
from onnxreg.schema.witness.witnessed import WitnessedHead

MAX_PUBLISH_TRIES = 20


@dataclass(frozen=True)
class WitnessPublication:
    """The checkpoint after a run; `changed` names have a new entry, `refused` says why others keep theirs."""

    head: TreeHead
    key: VerifierKey
    changed: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)


def path_store(store: RegistryStore) -> PathStore:
    """The files of a registry by path. InputError if it has no place for them."""
    inner = innermost(store)
    if not isinstance(inner, PathStore):
        raise InputError(f"{store.url} cannot keep a witness log", "publish it where the registry is written")
    return inner


@dataclass
class LogPublisher:
    """Publishes the heads of a registry with the key of its log."""

    store: RegistryStore
    key: PrivateKey

    def __post_init__(self) -> None:
        self._files = path_store(self.store)
        self._origin = origin_of(self.store.registry_id)
        self.verifier = VerifierKey.of(self._origin, ED25519, self.key.public)
        self._memory = WitnessMemory(self._origin, self.verifier)

    def publish(self, accept: Collection[str] = ()) -> WitnessPublication:
        """Append the present heads if they changed.

        A log that went back or was rewritten keeps its entry, unless its name is in `accept`. IntegrityError if the
        witness log itself went back since this user published it last, or is signed by another key.
        """
        if self.store.is_mirror:
            raise InputError(
                f"{self.store.url} is a mirror", "publish at the registry; a mirror carries its log"
            )
        with self._memory.locked():
            for _ in range(MAX_PUBLISH_TRIES):
                self._finish()
                checkpoint = find_checkpoint(self._files, self.store.registry_id)
                head = self._checked(checkpoint)
                log = WitnessLog(self._files)
                heads = log.newest_map(head)
                news = survey(self.store, {entry.name: entry for entry in heads}, accept)
                if checkpoint is not None and not news.changed:
                    return WitnessPublication(head, self.verifier, (), news.refused)
                heads.update(news.changed)
                if self._append(head, heads):
                    return WitnessPublication(
                        self._finish() or head, self.verifier, tuple(news.changed), news.refused
                    )
        raise LostRaceError("others publish to this witness log without end", "run one publisher")

    def _checked(self, checkpoint: StoredCheckpoint | None) -> TreeHead:
        """The head of a checkpoint that this key signed and that continues the last one that it signed."""
        last = self._memory.last_head
        if checkpoint is None:
            if last is not None:
                raise IntegrityError(
                    f"the witness log of {self.store.url} is gone: it had size {last.size}",
                    Advice("restore-witness-log"),
                )
            return TreeHead(self._origin, 0, EMPTY_TREE)
        if not valid_signatures(checkpoint.note, self.verifier):
            raise IntegrityError(
                f"the witness log of {self.store.url} is signed by another key", Advice("keep-log-key")
            )
        if last is not None:
            WitnessLog(self._files).check_continues(checkpoint.head, last)
        self._memory.keep(checkpoint.note)
        return checkpoint.head

    def _append(self, head: TreeHead, heads: MerkleMap) -> bool:
        """Write the pages of a map, and decide that it is the next entry; False if another publisher decided first."""
        before = self._files.read_file(NEXT)
        if before is not None and self._entry_after(before[0], head) is not None:
            return False
        self._files.write_files({page_path(page): data for page, data in heads.pages.items()})
        log = WitnessLog(self._files, dict(WitnessLog(self._files).tree(head.size).append(heads.root)))
        tree = log.tree(head.size + 1)
        note = sign_head(TreeHead(self._origin, tree.size, tree.root), self.key)
        proof = inclusion_proof(head.size, tree.size, tree.hash_at)
        witnessed = WitnessedHead(note, heads.root, tuple(proof))
        return self._files.swap_file(NEXT, witnessed.encode(), before[1] if before else None)

    def _entry_after(self, data: bytes, head: TreeHead) -> WitnessedHead | None:
        """The entry after a head that a publisher with this key decided on; None if the file is something else."""
        try:
            decided = WitnessedHead.parse(data)
            require_signature(decided.note, self.verifier)
        except (InputError, IntegrityError):
            return None
        return decided if decided.head.size == head.size + 1 else None

    def _finish(self) -> TreeHead | None:
        """Write what follows from a decided entry, and then the checkpoint; the new head, or None."""
        stored = self._files.read_file(NEXT)
        checkpoint = find_checkpoint(self._files, self.store.registry_id)
        head = checkpoint.head if checkpoint else TreeHead(self._origin, 0, EMPTY_TREE)
        decided = None if stored is None else self._entry_after(stored[0], head)
        if decided is None:
            return None
        self._write_tiles(decided, head.size)
        self._files.swap_file(CHECKPOINT, decided.note.encode(), checkpoint.token if checkpoint else None)
        present = find_checkpoint(self._files, self.store.registry_id)
        if present is not None and present.head.size >= decided.head.size:
            self._memory.keep(present.note)
        return decided.head

    def _write_tiles(self, decided: WitnessedHead, size: int) -> None:
        """Write the tiles and the bundle of the tree with one more entry. IntegrityError if its root is another."""
        log = WitnessLog(self._files)
        files = dict(log.tree(size).append(decided.map_root))
        if WitnessLog(self._files, files).tree(size + 1).root != decided.head.root:
            raise IntegrityError(
                f"the tiles of {self._origin} are not those of its checkpoint of size {size}"
            )
        count = size % TILE_WIDTH
        entries = [*(log.bundle(size) if count else []), decided.map_root]
        files[entries_path(size // TILE_WIDTH, count + 1)] = encode_entries(entries)
        self._files.write_files({f"{WITNESS_FOLDER}/{path}": data for path, data in files.items()})


def path_reader(reader: RegistryReader) -> PathReader:
    """The files of a registry by path. InputError if it has none."""
    inner = innermost(reader)
    if not isinstance(inner, PathReader):
        raise InputError(f"{reader.url} cannot have a witness log")
    return inner


class Cosignature(NamedTuple):
    """A checkpoint with the signatures of its log and of one witness, and the keys of both."""

    note: SignedNote
    witness: VerifierKey
    log: VerifierKey

    @property
    def head(self) -> TreeHead:
        return TreeHead.parse(self.note.text)

    @property
    def time(self) -> int:
        """The time of the cosignature, in seconds since the epoch."""
        return self.note.by(self.witness)[0].time


def cosign(reader: RegistryReader, name: str, key: PrivateKey, log_key: str | None = None) -> Cosignature:
    """Sign the newest checkpoint of a registry as the witness `name`.

    The state of the witness is durable before this returns. Raise InputError if the witness is the log itself;
    IntegrityError if the log went back, or did not sign the checkpoint with `log_key`; ForkError if the log was
    rewritten since the last time.

    Args:
        log_key: the verifier key of the log. It must be given the first time.
    """
    origin = origin_of(reader.registry_id)
    witness = VerifierKey.of(name, COSIGNATURE, key.public)
    memory = WitnessMemory(origin, witness)
    files = path_reader(reader)
    with memory.locked():
        checkpoint = read_checkpoint(files, reader.registry_id)
        log = VerifierKey.parse(log_key, ED25519) if log_key else memory.log_key
        if log is None:
            raise InputError(f"the key of {origin} is not known yet", Advice("name-log-key"))
        if log.raw == witness.raw:
            raise InputError(f"{name} is the key of this log", Advice("name-other-witness"))
        require_signature(checkpoint.note, log)
        last = memory.last_head or TreeHead(origin, 0, hashlib.sha256().digest())
        WitnessLog(files).check_continues(checkpoint.head, last)
        text = checkpoint.note.text
        signed = SignedNote(text, tuple(checkpoint.note.by(log)))
        signed = signed.signed_by([cosign_text(text, name, key, int(time.time()))])
        memory.keep(signed, log)
    return Cosignature(signed, witness, log)


def served_path(origin: str) -> str:
    """The path below a witness's place where it serves its checkpoint (c2sp.org/tlog-witness)."""
    return f"{hashlib.sha256(origin.encode()).hexdigest()}/checkpoint"


def serve_checkpoint(directory: Path, note: SignedNote) -> Path:
    """Write a cosigned checkpoint where a static web server can serve it; return the file."""
    path = directory / served_path(TreeHead.parse(note.text).origin)
    with host_errors(f"writing {path}"):
        replace_file(path, note.encode())
    return path


def fetch_checkpoint(url: str, origin: str) -> SignedNote:
    """The checkpoint of a log that a witness serves at a path or URL. NotFoundError if it serves none."""
    path, name = path_of(url), served_path(origin)
    if path is None:
        stored = HttpStore(url).get(name, fresh=True)
        data = None if stored is None else stored[0]
    else:
        data = read_given(path / name) if (path / name).exists() else None
    if data is None:
        raise NotFoundError(f"{url} has no cosigned checkpoint of this log", Advice("cosign-for-publisher"))
    return SignedNote.parse(data)


class WitnessMemory:
    """The memory of one key about one log. `locked` comes first."""

    def __init__(self, origin: str, key: VerifierKey, directory: Path | None = None) -> None:
        above = (directory or state_directory()) / "witness"
        self._root = above
        self._folder = above / hashlib.sha256(origin.encode()).hexdigest() / key.id.hex()
        self._disk = Disk()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes of this user from signing with the key."""
        with host_errors("locking the memory of the witness log"), exclusive(self._folder / "lock"):
            yield

    @property
    def last(self) -> SignedNote | None:
        """The last checkpoint that was signed. IntegrityError if the file is damaged."""
        data = self._read("checkpoint")
        try:
            return None if data is None else SignedNote.parse(data)
        except InputError as error:
            raise IntegrityError(f"the memory of the witness log is damaged: {error.message}") from error

    @property
    def last_head(self) -> TreeHead | None:
        return None if self.last is None else TreeHead.parse(self.last.text)

    @property
    def log_key(self) -> VerifierKey | None:
        """The key of the log that a witness was named."""
        data = self._read("log-key")
        return None if data is None else VerifierKey.parse(data.decode(), ED25519)

    def keep(self, note: SignedNote, log_key: VerifierKey | None = None) -> None:
        """Remember a checkpoint, durably, and the key of its log."""
        if log_key is not None:
            self._write("log-key", str(log_key).encode())
        self._write("checkpoint", note.encode())

    def _read(self, name: str) -> bytes | None:
        with host_errors("reading the memory of the witness log"):
            path = self._folder / name
            return path.read_bytes() if path.exists() else None

    def _write(self, name: str, data: bytes) -> None:
        with host_errors("writing the memory of the witness log"):
            scratch = self._folder / f".{name}.{os.urandom(8).hex()}"
            with self._disk.create(scratch) as file:
                file.write(data)
            self._disk.write_all([(scratch, self._folder / name)], self._root)
