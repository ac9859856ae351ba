"""Signing a release: the envelope around its statement."""

from onnxreg.registry.signing.crypto import PrivateKey
from onnxreg.schema.core.version import Version
from onnxreg.schema.signing.dsse import Envelope, pae
from onnxreg.schema.signing.statement import PAYLOAD_TYPE, Release


def sign_release(name: str, version: Version, manifest: bytes, key: PrivateKey) -> Envelope:
    """A key states that the manifest with these bytes is this version of a model."""
    payload = Release.about(name, version, manifest).encode()
    return Envelope(PAYLOAD_TYPE, payload, (key.sign(pae(PAYLOAD_TYPE, payload)),))
