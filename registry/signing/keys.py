"""The user's keys: `<name>.pem` (PKCS #8, encrypted, mode 0600) and `<name>.pub` in a directory of the user's own.

`REG_SIGNING_KEY` names the key that signs every line, or is itself a key (PEM). Light, since every write asks for
it; only the use of a key imports the cryptography.
"""

import os
import re
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.registry.support import environment
from onnxreg.registry.support.disk import host_errors
from onnxreg.registry.support.environment import key_directory
from onnxreg.schema.core.errors import Advice, ConflictError, InputError, NotFoundError
from onnxreg.schema.signing.keys import PublicKey

if TYPE_CHECKING:
    from onnxreg.registry.signing.crypto import PrivateKey
    from onnxreg.schema.signing.dsse import Sign, Signature

PASSPHRASE = "REG_KEY_PASSPHRASE"
SIGNING_KEY = "REG_SIGNING_KEY"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_MAX_PEM = 64 * 1024


def passphrase(name: str, new: bool = False) -> str:
    """Read a passphrase from the environment, or from a person at a terminal. Raise InputError without both."""
    given = environment.read(PASSPHRASE)
    if given is None and sys.stdin is not None and sys.stdin.isatty():
        from getpass import getpass

        given = getpass(f"Passphrase of key {name}: ")
        if new and given != getpass("The same again: "):
            raise InputError("the two passphrases differ", "type the same one twice")
    if not given:
        raise InputError(f"key {name} needs a passphrase", f"set {PASSPHRASE}, or answer at a terminal")
    return given


class Keystore:
    """The keys of one directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or key_directory()

    def new(self, name: str, kind: str, secret: str | None = None) -> PublicKey:
        """Make a key. ConflictError if the name is taken; nothing half-written stays."""
        if not _NAME.fullmatch(name):
            raise InputError(
                f"not a name for a key: {name[:80]!r}", "use letters and digits, such as release-2026"
            )
        from onnxreg.registry.signing.crypto import generate

        key = generate(kind)
        pem = key.pem(secret if secret is not None else passphrase(name, new=True))
        with host_errors(f"writing key {name}"):
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write(f"{name}.pem", pem, 0o600)
            self._write(f"{name}.pub", f"{key.public}\n".encode(), 0o644)
        return key.public

    def _write(self, file: str, data: bytes, mode: int) -> None:
        """Write a new file, whole or not at all. Raise ConflictError if it exists."""
        scratch = self.directory / f".{file}.{os.urandom(8).hex()}"
        try:
            with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.link(scratch, self.directory / file)
        except FileExistsError:
            hint = "a key is never replaced: make the next one under another name, and revoke the old one"
            raise ConflictError(f"there is a key {file.rpartition('.')[0]} already", hint) from None
        finally:
            with suppress(OSError):
                scratch.unlink()

    def list(self) -> dict[str, PublicKey]:
        """The public keys by name."""
        with host_errors("listing the keys"):
            files = sorted(self.directory.glob("*.pub")) if self.directory.is_dir() else []
        return {file.stem: self.public(file.stem) for file in files if _NAME.fullmatch(file.stem)}

    def has(self, name: str) -> bool:
        """Return True if there is a private key of that name."""
        return _NAME.fullmatch(name) is not None and (self.directory / f"{name}.pem").is_file()

    def public(self, name: str) -> PublicKey:
        """NotFoundError if there is no such key."""
        return PublicKey.parse(self._read(name, "pub").decode(errors="replace"))

    def private(self, name: str, secret: str | None = None) -> "PrivateKey":
        """Unlock a key. InputError for a wrong passphrase; NotFoundError if there is no such key."""
        from onnxreg.registry.signing.crypto import load

        pem = self._read(name, "pem")
        return load(pem, secret if secret is not None else passphrase(name))

    def _read(self, name: str, suffix: str) -> bytes:
        if _NAME.fullmatch(name):
            path = self.directory / f"{name}.{suffix}"
            with host_errors(f"reading key {name}"), suppress(FileNotFoundError), path.open("rb") as stream:
                return stream.read(_MAX_PEM)
        called = f"there is no key {name}" if _NAME.fullmatch(name) else "that is not the name of a key"
        raise NotFoundError(called, Advice("list-keys"))


def line_signer() -> "Sign | None":
    """Return the function that signs new lines; None if no key is configured. The first line unlocks the key."""
    named = environment.read(SIGNING_KEY)
    if not named:
        return None

    def sign(data: bytes) -> "Signature":
        return signing_key().sign(data)

    return sign


def signing_key(name: str | None = None) -> "PrivateKey":
    """Return the key of a name, else the configured key, else the only key. Raise InputError without one."""
    secret, configured = environment.read(PASSPHRASE), environment.read(SIGNING_KEY)
    if name:
        return _unlocked(name, secret, str(Keystore().directory))
    if configured:
        return _configured(configured, secret)
    names = list(Keystore().list())
    if len(names) != 1:
        problem = "there are several keys" if names else "there is no key"
        raise InputError(f"{problem} to sign with", Advice("name-key"))
    return _unlocked(names[0], secret, str(Keystore().directory))


def _configured(value: str, secret: str | None) -> "PrivateKey":
    """Return the key of `REG_SIGNING_KEY`. An error does not show its value, which may be a key."""
    if value.lstrip().startswith("-----BEGIN"):
        return _read_pem(value.strip(), secret)
    if not Keystore().has(value):
        raise InputError(
            f"{SIGNING_KEY} is neither the name of a key nor a PEM",
            Advice("name-key-or-pem"),
        )
    return _unlocked(value, secret, str(Keystore().directory))


@lru_cache(maxsize=8)
def _read_pem(pem: str, secret: str | None) -> "PrivateKey":
    from onnxreg.registry.signing.crypto import load

    return load(pem.encode(), secret)


@lru_cache(maxsize=8)
def _unlocked(name: str, secret: str | None, directory: str) -> "PrivateKey":
    """Unlock a key once. Unlocking is slow on purpose."""
    return Keystore().private(name)
