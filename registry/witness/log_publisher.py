"""The job that publishes a registry's heads in its witness log. It alone holds the key of the log.

Order of writes: the pages of the map; `next`, by compare and swap, which decides the next entry (it is the signed
checkpoint to come, with the entry); the tiles and entries that follow from it; `checkpoint`. A publisher that finds
a `next` which its own key signed finishes it first. So of two publishers both go on with one history, and what a
killed one left is continued.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from onnxreg.registry.signing.crypto import PrivateKey
from onnxreg.registry.store.layout import CHECKPOINT, NEXT, WITNESS_FOLDER, page_path
from onnxreg.registry.store.protocol import PathStore, RegistryStore, innermost
from onnxreg.registry.witness.heads import survey
from onnxreg.registry.witness.note_keys import require_signature, sign_head, valid_signatures
from onnxreg.registry.witness.signed_heads import WitnessMemory
from onnxreg.registry.witness.witness_log import StoredCheckpoint, WitnessLog, find_checkpoint
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError, LostRaceError
from onnxreg.schema.witness.merkle_map import MerkleMap
from onnxreg.schema.witness.merkle_tree import (
    EMPTY_TREE,
    TILE_WIDTH,
    encode_entries,
    entries_path,
    inclusion_proof,
)
from onnxreg.schema.witness.note import ED25519, TreeHead, VerifierKey, origin_of
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
