"""The key that signs unasked: `REG_SIGNING_KEY` names one of the user's keys, or is one itself (PEM).

Every write asks for it; only a configured key imports the keystore and the cryptography.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from onnxreg.registry.support import environment
from onnxreg.schema.core.errors import Advice, InputError

if TYPE_CHECKING:
    from onnxreg.registry.signing.crypto import PrivateKey
    from onnxreg.schema.signing.dsse import Signature
    from onnxreg.schema.signing.line_signature import Sign

SIGNING_KEY = "REG_SIGNING_KEY"


def line_signer() -> "Sign | None":
    """Signs the lines that are appended; None if no key is configured. The key is unlocked at the first line."""
    named = environment.read(SIGNING_KEY)
    if not named:
        return None

    def sign(data: bytes) -> "Signature":
        return signing_key().sign(data)

    return sign


def signing_key(name: str | None = None) -> "PrivateKey":
    """A key by name, else the configured one, else the only one there is. InputError if there is no such key."""
    from onnxreg.registry.signing.keystore import PASSPHRASE, Keystore

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
    """The key that the environment names or is. What is neither may be a key too, so no error says it."""
    from onnxreg.registry.signing.keystore import Keystore

    if value.lstrip().startswith("-----BEGIN"):
        return _read(value.strip(), secret)
    if not Keystore().has(value):
        raise InputError(
            f"{SIGNING_KEY} is neither the name of a key nor a PEM",
            Advice("name-key-or-pem"),
        )
    return _unlocked(value, secret, str(Keystore().directory))


@lru_cache(maxsize=8)
def _read(pem: str, secret: str | None) -> "PrivateKey":
    from onnxreg.registry.signing.crypto import load

    return load(pem.encode(), secret)


@lru_cache(maxsize=8)
def _unlocked(name: str, secret: str | None, directory: str) -> "PrivateKey":
    """Unlocking takes its time on purpose, so it is done once."""
    from onnxreg.registry.signing.keystore import Keystore

    return Keystore().private(name)
