"""The signature bundle of OpenSSF Model Signing 1.0 (github.com/sigstore/model-transparency), key mode.

A Sigstore bundle 0.3 around a DSSE envelope whose statement lists every file of a model with its SHA-256. So a program
that knows nothing of registries can check a directory. It wants ECDSA P-256.
"""

import hashlib
import json
from collections.abc import Mapping

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, InputError
from onnxreg.schema.signing.dsse import PAYLOAD_TYPE, STATEMENT, Envelope, pae
from onnxreg.schema.signing.keys import PublicKey
from onnxreg.schema.signing.line_signature import Sign

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PREDICATE = "https://model_signing/signature/v1.0"
KIND = "ecdsa-p256"


def make_bundle(name: str, files: Mapping[str, Digest], key: PublicKey, sign: Sign) -> bytes:
    """The bundle of a directory with exactly these files. InputError if the key is of a kind that it cannot have."""
    if key.kind != KIND:
        raise InputError(
            f"a bundle for model_signing is signed with {KIND}, not {key.kind}",
            Advice("create-key-of-kind", kind=KIND),
        )
    payload = _statement(name, files)
    signature = sign(pae(PAYLOAD_TYPE, payload))
    envelope: dict[str, object] = json.loads(Envelope(PAYLOAD_TYPE, payload, (signature,)).encode())
    hint = hashlib.sha256(key.pem.encode()).hexdigest()
    material = {"publicKey": {"hint": hint}, "tlogEntries": []}
    return canonical.encode(
        {"mediaType": MEDIA_TYPE, "verificationMaterial": material, "dsseEnvelope": envelope}
    )


def _statement(name: str, files: Mapping[str, Digest]) -> bytes:
    """The subject is the SHA-256 over the digests of all files, in the order in which the predicate lists them."""
    resources = [{"name": path, "algorithm": "sha256", "digest": files[path].hex} for path in sorted(files)]
    root = hashlib.sha256(b"".join(bytes.fromhex(files[path].hex) for path in sorted(files)))
    serialization = {"method": "files", "hash_type": "sha256", "allow_symlinks": False}
    return canonical.encode(
        {
            "_type": STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": root.hexdigest()}}],
            "predicateType": PREDICATE,
            "predicate": {"serialization": serialization, "resources": resources},
        }
    )
