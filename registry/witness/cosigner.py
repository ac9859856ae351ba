"""A witness: it signs the newest checkpoint of a log if that continues the last one that it signed."""

import hashlib
import time
from pathlib import Path
from typing import NamedTuple

from onnxreg.registry.signing.crypto import PrivateKey
from onnxreg.registry.store.http.http import HttpStore
from onnxreg.registry.store.open import path_of
from onnxreg.registry.store.protocol import PathReader, RegistryReader, innermost
from onnxreg.registry.support.disk import host_errors, read_given, replace_file
from onnxreg.registry.witness.note_keys import cosign_text, require_signature
from onnxreg.registry.witness.signed_heads import WitnessMemory
from onnxreg.registry.witness.witness_log import WitnessLog, read_checkpoint
from onnxreg.schema.core.errors import Advice, InputError, NotFoundError
from onnxreg.schema.witness.note import COSIGNATURE, ED25519, SignedNote, TreeHead, VerifierKey, origin_of


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
