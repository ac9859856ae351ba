"""Copies of a witness log: whole for a mirror, and for an archive the proofs of the models that it carries.

A registry shows its readers the cosigned checkpoints in one file, into which signers merge theirs.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from onnxreg.registry.store.layout import CHECKPOINT, NEXT, PROOFS, is_witness_path, page_path
from onnxreg.registry.store.protocol import (
    PathReader,
    PathStore,
    RegistryReader,
    RegistryStore,
    StoredObject,
    innermost,
)
from onnxreg.registry.witness.note_keys import require_signature
from onnxreg.registry.witness.signers import path_reader
from onnxreg.registry.witness.witness_log import WitnessLog, find_checkpoint
from onnxreg.schema.core.errors import InputError, IntegrityError, LostRaceError, NotFoundError
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.witness.merkle_map import MerkleMap
from onnxreg.schema.witness.note import SignedNote, VerifierKey
from onnxreg.schema.witness.witnessed import WitnessedHead, decode_heads, encode_heads, merge_heads


class WitnessFiles(NamedTuple):
    """The files of a witness log that change, as they were at one moment."""

    checkpoint: StoredObject | None = None
    proofs: StoredObject | None = None


def read_files(reader: RegistryReader) -> WitnessFiles:
    """Read the files that change. A copy takes them before the models, whose logs then continue the map."""
    files = innermost(reader)
    if not isinstance(files, PathReader):
        return WitnessFiles()
    proofs = files.read_file(PROOFS)
    return WitnessFiles(files.read_file(CHECKPOINT), proofs)


def copy_log(source: RegistryStore, destination: RegistryStore, changing: WitnessFiles) -> None:
    """Copy a witness log verbatim, the files that change last. A copy that is ahead stays as it is."""
    files, target = innermost(source), innermost(destination)
    if changing.checkpoint is None or not (isinstance(files, PathReader) and isinstance(target, PathStore)):
        return
    present = {file.path: file.size for file in destination.files()}
    paths = [file for file in source.files() if is_witness_path(file.path)]
    missing = [file.path for file in paths if present.get(file.path) != file.size]
    copied = {
        path: files.read_file(path, (b"", "")) for path in missing if path not in (CHECKPOINT, NEXT, PROOFS)
    }
    target.write_files({path: stored[0] for path, stored in copied.items() if stored is not None})
    before = find_checkpoint(target, destination.registry_id)
    newest = find_checkpoint(files, source.registry_id)
    if before is not None and newest is not None and before.head.size > newest.head.size:
        return
    for path, stored in ((CHECKPOINT, changing.checkpoint), (PROOFS, changing.proofs)):
        current = target.read_file(path)
        if stored is not None and (current is None or current[0] != stored[0]):
            target.swap_file(path, stored[0], current[1] if current else None)


def proof_files(reader: RegistryReader, names: Collection[str]) -> dict[str, bytes]:
    """The cosigned checkpoints, and the pages of their maps on the ways to these names, by path.

    Raise NotFoundError without any.
    """
    files = path_reader(reader)
    stored = files.read_file(PROOFS)
    if stored is None:
        raise NotFoundError(f"no witness has cosigned the log of {reader.url}", "archive it without proofs")
    entries = {PROOFS: stored[0]}

    def read(page: bytes) -> bytes:
        path = page_path(page)
        data = files.read_file(path, (b"", ""))
        if data is None:
            raise NotFoundError(f"{path} of {reader.url} is missing", "archive it without proofs")
        entries[path] = data[0]
        return data[0]

    for witnessed in parse_proofs(stored[0]):
        heads = MerkleMap(witnessed.map_root, read)
        for name in (*names, POLICY_LOG):
            heads.get(name)
    return entries


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

    A checkpoint that is shown already and is not signed by that key is dropped, and a damaged file replaced.
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
    """Those of the shown checkpoints that the log's key signed; none if the file is damaged."""
    genuine = []
    with suppress(InputError):
        for head in decode_heads(data):
            with suppress(IntegrityError):
                require_signature(head.note, log_key)
                genuine.append(head)
    return genuine
