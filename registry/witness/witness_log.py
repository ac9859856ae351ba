"""Reading the witness log of a registry: its checkpoint, tiles, entries and maps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from onnxreg.registry.store.layout import CHECKPOINT, WITNESS_FOLDER, page_path
from onnxreg.registry.store.protocol import PathReader
from onnxreg.schema.core.errors import Advice, ForkError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.witness.merkle_map import EMPTY_MAP, MerkleMap
from onnxreg.schema.witness.merkle_tree import (
    TILE_WIDTH,
    Tile,
    TiledTree,
    consistency_proof,
    decode_entries,
    entries_path,
    inclusion_proof,
    is_consistent,
    leaf_hash,
)
from onnxreg.schema.witness.note import SignedNote, TreeHead, origin_of
from onnxreg.schema.witness.witnessed import WitnessedHead


@dataclass
class WitnessLog:
    """The files of a witness log. `more` are files that are about to be written."""

    store: PathReader
    more: Mapping[str, bytes] = field(default_factory=dict)

    def read(self, path: str) -> bytes:
        """A file that never changes, by its path below `witness/`. IntegrityError if it is missing."""
        if path in self.more:
            return self.more[path]
        stored = self.store.read_file(f"{WITNESS_FOLDER}/{path}")
        if stored is None:
            raise IntegrityError(f"{WITNESS_FOLDER}/{path} is missing", Advice("publish-witness-log"))
        return stored[0]

    def tree(self, size: int) -> TiledTree:
        tiles: dict[Tile, bytes] = {}

        def read(tile: Tile) -> bytes:
            if tile not in tiles:
                tiles[tile] = self.read(tile.path)
            return tiles[tile]

        return TiledTree(size, read)

    def bundle(self, size: int) -> list[bytes]:
        """The entries of the last bundle of a log of this size."""
        width = (size - 1) % TILE_WIDTH + 1
        return decode_entries(self.read(entries_path((size - 1) // TILE_WIDTH, width))) if size else []

    def newest_map(self, head: TreeHead) -> MerkleMap:
        """The map that the newest leaf is the root of. IntegrityError if the tree does not lead to the head."""
        if head.size == 0:
            return self.map(EMPTY_MAP)
        root, tree = self.bundle(head.size)[-1], self.tree(head.size)
        if tree.root != head.root or tree.hash_at(0, head.size - 1) != leaf_hash(root):
            raise IntegrityError(
                f"the tiles of {head.origin} are not those of its checkpoint of size {head.size}"
            )
        return self.map(root)

    def map(self, root: bytes) -> MerkleMap:
        return MerkleMap(root, lambda page: self.read(page_path(page).removeprefix(f"{WITNESS_FOLDER}/")))

    def witnessed(self, note: SignedNote) -> WitnessedHead:
        """A checkpoint with the proof of its newest leaf. IntegrityError if the log does not have it."""
        head = TreeHead.parse(note.text)
        tree = self.tree(head.size)
        proof = inclusion_proof(head.size - 1, head.size, tree.hash_at)
        try:
            return WitnessedHead.parse(WitnessedHead(note, self.bundle(head.size)[-1], tuple(proof)).encode())
        except InputError as error:
            raise IntegrityError(f"the tiles of {head.origin} are wrong: {error.message}") from error

    def check_continues(self, head: TreeHead, last: TreeHead) -> None:
        """Raise IntegrityError if a head is older than one signed before, ForkError if it does not begin with it."""
        if head.size < last.size:
            raise IntegrityError(
                f"{head.origin} went back in time: its checkpoint has size {head.size}, {last.size} was signed before",
                Advice("restore-witness-log"),
            )
        tree = self.tree(head.size)
        proof = consistency_proof(last.size, head.size, tree.hash_at)
        grows = is_consistent(last.size, head.size, last.root, head.root, proof)
        if not grows or (last.size == 0 and tree.root != head.root):
            raise ForkError(
                f"{head.origin} was rewritten: its checkpoint of size {head.size} does not continue that of size "
                f"{last.size}, which was signed before",
                Advice("restore-witness-log"),
            )


@dataclass(frozen=True)
class StoredCheckpoint:
    """The checkpoint of a registry's log, as it is in the store."""

    note: SignedNote
    token: str

    @cached_property
    def head(self) -> TreeHead:
        return TreeHead.parse(self.note.text)


def find_checkpoint(store: PathReader, registry: str) -> StoredCheckpoint | None:
    """Read the newest checkpoint; None without one. IntegrityError if it is another log's, or malformed."""
    stored = store.read_file(CHECKPOINT)
    if stored is None:
        return None
    try:
        checkpoint = StoredCheckpoint(SignedNote.parse(stored[0]), stored[1])
        origin = checkpoint.head.origin
    except InputError as error:
        raise IntegrityError(f"{CHECKPOINT} is damaged: {error.message}") from error
    if origin != origin_of(registry):
        raise IntegrityError(f"{CHECKPOINT} is that of {origin[:80]}, not of {origin_of(registry)}")
    return checkpoint


def read_checkpoint(store: PathReader, registry: str) -> StoredCheckpoint:
    """Read the newest checkpoint. Raise NotFoundError without one."""
    checkpoint = find_checkpoint(store, registry)
    if checkpoint is None:
        raise NotFoundError("the registry has no witness log", Advice("publish-witness-log"))
    return checkpoint
