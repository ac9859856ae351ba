"""The user's private keys, which sign log lines and statements about models.

A key consists of two files, `<name>.pem` (PKCS #8, encrypted, mode 0600) and `<name>.pub`. Only the user can open their
directory. `REG_SIGNING_KEY` has the name of the key that signs every line, or the key itself (PEM).
"""

import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from onnxreg.registry import system
from onnxreg.registry.system import host_errors
from onnxreg.schema.core.errors import ConflictError, InputError, NotFoundError, missing_extra
from onnxreg.schema.signing.dsse import PAYLOAD_TYPE, SPKI, Envelope, PublicKey, Signature, Statement, pae

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_PEM, _MAX_PEM_BYTES = "-----BEGIN", 64 * 1024


def library(purpose: str = "signing") -> Any:
    """Import the needed parts of `cryptography`. If it is not installed, raise HostError."""
    try:
        from cryptography import exceptions
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise missing_extra("cryptography", "sign", purpose) from None
    return SimpleNamespace(exceptions=exceptions, hashes=hashes, form=serialization, ec=ec, ed25519=ed25519)


@dataclass(frozen=True, repr=False)
class PrivateKey:
    public: PublicKey
    _key: Any

    def sign(self, data: bytes) -> Signature:
        """Sign bytes: Ed25519 (RFC 8032), or ECDSA over SHA-256 in DER (FIPS 186-5)."""
        return Signature(self._key.sign(data, *_algorithm(self.public)), self.public.id)

    def pem(self, secret: str) -> bytes:
        """Encode the key as PKCS #8 PEM, encrypted with the passphrase `secret`."""
        form = library().form
        protection = form.BestAvailableEncryption(secret.encode())
        return bytes(self._key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, protection))

    @classmethod
    def of(cls, key: Any) -> "PrivateKey":
        """Wrap a private key of `cryptography`. Raise InputError if it is neither Ed25519 nor ECDSA P-256."""
        form = library().form
        spki = key.public_key().public_bytes(form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
        for kind, prefix in SPKI.items():
            if spki.startswith(prefix):
                return cls(PublicKey(kind, spki[len(prefix) :]), key)
        hint = "`reg key new NAME` makes one that is"
        raise InputError("the private key is neither Ed25519 nor ECDSA P-256", hint)

    @classmethod
    def load(cls, pem: bytes, secret: str | None) -> "PrivateKey":
        """Read a PKCS #8 PEM. If this fails, raise InputError. The message shows nothing of the key."""
        used = library()
        password = secret.encode() if secret and b"ENCRYPTED" in pem.partition(b"\n")[0] else None
        try:
            return cls.of(used.form.load_pem_private_key(pem, password))
        except (ValueError, TypeError, used.exceptions.UnsupportedAlgorithm):
            raise InputError(
                "the private key cannot be read: it is damaged, of an unknown kind, or the passphrase is wrong",
                "see `reg key list`; REG_KEY_PASSPHRASE holds the passphrase",
            ) from None


class Keystore:
    """The keys in the user's directory of keys."""

    def __init__(self) -> None:
        self.directory = system.key_directory()

    def new(self, name: str, kind: str, secret: str | None = None) -> PublicKey:
        """Make a key and write its two files, or neither. Raise ConflictError if the name is taken."""
        if not _NAME.fullmatch(name):
            hint = "use letters and digits, such as release-2026"
            raise InputError(f"not a name for a key: {name[:80]!r}", hint)
        key = generate(kind)
        pem = key.pem(passphrase(name, new=True) if secret is None else secret)
        with host_errors(f"writing key {name}"):
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write(f"{name}.pem", pem, 0o600)
            try:
                self._write(f"{name}.pub", f"{key.public}\n".encode(), 0o644)
            except BaseException:
                (self.directory / f"{name}.pem").unlink()
                raise
        return key.public

    def _write(self, file: str, data: bytes, mode: int) -> None:
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
            scratch.unlink(missing_ok=True)

    def list(self) -> dict[str, PublicKey]:
        with host_errors("listing the keys"):
            files = sorted(self.directory.glob("*.pub")) if self.directory.is_dir() else []
        return {file.stem: self.public(file.stem) for file in files if _NAME.fullmatch(file.stem)}

    def has(self, name: str) -> bool:
        return _NAME.fullmatch(name) is not None and (self.directory / f"{name}.pem").is_file()

    def public(self, name: str) -> PublicKey:
        return PublicKey.parse(self._read(name, "pub").decode(errors="replace"))

    def private(self, name: str, secret: str | None = None) -> PrivateKey:
        """Unlock a key. Raises InputError for a wrong passphrase, and NotFoundError for an unknown name."""
        return PrivateKey.load(self._read(name, "pem"), passphrase(name) if secret is None else secret)

    def _read(self, name: str, suffix: str) -> bytes:
        problem = "that is not the name of a key"
        if _NAME.fullmatch(name):
            path, problem = self.directory / f"{name}.{suffix}", f"there is no key {name}"
            with host_errors(f"reading key {name}"), suppress(FileNotFoundError), path.open("rb") as stream:
                return stream.read(_MAX_PEM_BYTES)
        raise NotFoundError(problem, "`reg key list` shows them; `reg key new` makes one")


def signing_key(name: str | None = None) -> PrivateKey:
    """Unlock a key. The default is the configured key or the only one. Raises InputError if there is no default."""
    keys, configured = Keystore(), (system.variable("REG_SIGNING_KEY") or "").strip()
    if not name and configured:
        if not (configured.startswith(_PEM) or keys.has(configured)):  # it may be a secret
            hint = "`reg key list` shows the names"
            raise InputError("REG_SIGNING_KEY is neither the name of a key nor a PEM", hint)
        name = configured
    elif not name:
        if len(names := list(keys.list())) != 1:
            raise InputError("which key signs?", "name one with --key; `reg key new NAME` makes one")
        name = names[0]
    return _unlocked(name, name == configured, system.variable("REG_KEY_PASSPHRASE"), keys.directory)


@lru_cache(maxsize=8)
def _unlocked(key: str, is_configured: bool, secret: str | None, directory: Path) -> PrivateKey:
    is_pem = is_configured and key.startswith(_PEM)
    return PrivateKey.load(key.encode(), secret) if is_pem else Keystore().private(key)


def passphrase(name: str, new: bool = False) -> str:
    """Read a passphrase from the environment or from the terminal. Raises InputError if there is none."""
    secret = system.variable("REG_KEY_PASSPHRASE")
    if secret is None and sys.stdin is not None and sys.stdin.isatty():
        from getpass import getpass

        secret = getpass(f"Passphrase of key {name}: ")
        if new and secret != getpass("The same again: "):
            raise InputError("the two passphrases differ", "type the same one twice")
    if not secret:
        raise InputError(f"key {name} needs a passphrase", "set REG_KEY_PASSPHRASE, or answer at a terminal")
    return secret


def _algorithm(key: PublicKey) -> tuple[Any, ...]:
    if key.kind == "ed25519":
        return ()
    used = library()
    with suppress(used.exceptions.UnsupportedAlgorithm):  # then the same bytes always get the same signature
        return (used.ec.ECDSA(used.hashes.SHA256(), deterministic_signing=True),)
    return (used.ec.ECDSA(used.hashes.SHA256()),)


def generate(kind: str) -> PrivateKey:
    """Generate a key of this kind: `ed25519` or `ecdsa-p256`."""
    if kind not in SPKI:
        raise InputError(f"no key kind {kind[:20]!r}", f"known are {' and '.join(SPKI)}")
    used = library()
    if kind == "ed25519":
        return PrivateKey.of(used.ed25519.Ed25519PrivateKey.generate())
    return PrivateKey.of(used.ec.generate_private_key(used.ec.SECP256R1()))


def is_valid(key: PublicKey, signature: bytes, data: bytes) -> bool:
    """True if the signature over these bytes was made with the private part of this key."""
    used = library("checking a signature")
    try:
        used.form.load_der_public_key(key.spki).verify(signature, data, *_algorithm(key))
    except (used.exceptions.InvalidSignature, ValueError):
        return False
    return True


def sign_statement(statement: Statement, *keys: PrivateKey) -> Envelope:
    payload = statement.encode()
    return Envelope(PAYLOAD_TYPE, payload, tuple(key.sign(pae(PAYLOAD_TYPE, payload)) for key in keys))
