"""The cosigned checkpoints that a registry shows its readers, in one file that signers merge into."""

from collections.abc import Iterable

from onnxreg.registry.store.abilities import PathReader, PathStore
from onnxreg.registry.store.layout import PROOFS
from onnxreg.registry.witness.note_keys import require_signature
from onnxreg.registry.witness.witness_log import WitnessLog
from onnxreg.schema.core.errors import InputError, IntegrityError, LostRaceError
from onnxreg.schema.witness.note import SignedNote, VerifierKey
from onnxreg.schema.witness.witnessed import WitnessedHead, decode_heads, encode_heads, merge_heads

MAX_MERGE_TRIES = 20


def read_proofs(store: PathReader) -> list[WitnessedHead]:
    """The cosigned checkpoints, the largest tree first. IntegrityError if the file is malformed."""
    stored = store.read_file(PROOFS)
    return [] if stored is None else parse_proofs(stored[0])


def parse_proofs(data: bytes) -> list[WitnessedHead]:
    """Read the file. IntegrityError if it is malformed."""
    try:
        return decode_heads(data)
    except InputError as error:
        raise IntegrityError(f"{PROOFS} is damaged: {error.message}") from error


def merge_proofs(store: PathStore, notes: Iterable[SignedNote], log_key: VerifierKey) -> list[WitnessedHead]:
    """Add cosigned checkpoints, which the key of the log signed, to those that are shown; return all of these.

    What is shown already and is damaged, or not signed by that key, is dropped.
    """
    log = WitnessLog(store)
    new = []
    for note in notes:
        require_signature(note, log_key)
        new.append(log.witnessed(note))
    for _ in range(MAX_MERGE_TRIES):
        stored = store.read_file(PROOFS)
        heads = merge_heads([*new, *(_genuine(stored[0], log_key) if stored else [])])
        data = encode_heads(heads)
        if stored is not None and stored[0] == data:
            return heads
        if store.swap_file(PROOFS, data, stored[1] if stored else None):
            return heads
    raise LostRaceError(f"{PROOFS} is being changed by others without end", "run the command again")


def _genuine(data: bytes, log_key: VerifierKey) -> list[WitnessedHead]:
    """Those of the shown checkpoints that the log's key signed."""
    genuine = []
    try:
        for head in decode_heads(data):
            require_signature(head.note, log_key)
            genuine.append(head)
    except (InputError, IntegrityError):
        return genuine
    return genuine
