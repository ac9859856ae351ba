"""The last checkpoint that a signer signed: a file for each log and key in the user's state directory.

A signer holds a lock from reading to writing, and writes durably before a signature leaves the machine. So it
never signs two histories of one log, even if it is killed.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onnxreg.registry.store.directory.scratch import exclusive
from onnxreg.registry.support.disk import Disk, host_errors
from onnxreg.registry.support.environment import state_directory
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.witness.note import ED25519, SignedNote, TreeHead, VerifierKey


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
