"""The state of a registry's witness log, and the check of all of it."""

from collections.abc import Iterator
from dataclasses import dataclass

from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.witness.copies import read_proofs
from onnxreg.registry.witness.heads import HeadSurvey, survey
from onnxreg.registry.witness.note_keys import require_signature
from onnxreg.registry.witness.signers import path_reader
from onnxreg.registry.witness.witness_log import StoredCheckpoint, WitnessLog, read_checkpoint
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.witness.merkle_map import MerkleMap
from onnxreg.schema.witness.merkle_tree import TILE_WIDTH, decode_entries, entries_path, leaf_hash
from onnxreg.schema.witness.note import ED25519, TreeHead, VerifierKey
from onnxreg.schema.witness.witnessed import WitnessedHead


@dataclass(frozen=True)
class WitnessStatus:
    """The newest checkpoint of a log, the map of its newest leaf, and the cosigned checkpoints."""

    checkpoint: StoredCheckpoint
    heads: MerkleMap
    proofs: list[WitnessedHead]


def inspect(reader: RegistryReader) -> WitnessStatus:
    """Read the state of a witness log. Raise NotFoundError without one."""
    files = path_reader(reader)
    checkpoint = read_checkpoint(files, reader.registry_id)
    return WitnessStatus(checkpoint, WitnessLog(files).newest_map(checkpoint.head), read_proofs(files))


def verify_log(reader: RegistryReader, log_key: str | None = None) -> HeadSurvey:
    """Read every file of a witness log, and compare the heads with those of its newest map.

    IntegrityError at the first file that is missing or wrong. `refused` has the models whose logs contradict the
    map, `changed` those with lines that are not witnessed yet.
    """
    files = path_reader(reader)
    status = inspect(reader)
    if log_key is not None:
        require_signature(status.checkpoint.note, VerifierKey.parse(log_key, ED25519))
    head, log = status.checkpoint.head, WitnessLog(files)
    tree = log.tree(head.size)
    for index, entry in enumerate(_entries(log, head.size)):
        if leaf_hash(entry) != tree.hash_at(0, index):
            raise IntegrityError(f"entry {index} of the witness log is not that of its tile")
    _check_proofs(log, head, status.proofs)
    return survey(reader, {entry.name: entry for entry in status.heads}, ())


def _entries(log: WitnessLog, size: int) -> Iterator[bytes]:
    for first in range(0, size, TILE_WIDTH):
        width = min(TILE_WIDTH, size - first)
        entries = decode_entries(log.read(entries_path(first // TILE_WIDTH, width)))
        if len(entries) != width:
            raise IntegrityError(f"the bundle of entry {first} of the witness log has {len(entries)} entries")
        yield from entries


def _check_proofs(log: WitnessLog, head: TreeHead, proofs: list[WitnessedHead]) -> None:
    """IntegrityError if a cosigned checkpoint is not one of this log."""
    for proof in proofs:
        if proof.head.origin != head.origin:
            raise IntegrityError(f"a cosigned checkpoint is that of {proof.head.origin[:80]}")
        log.check_continues(head, proof.head)
