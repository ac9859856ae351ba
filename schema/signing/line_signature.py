"""The signature of a log line: `"<key id>:<base64>"` in its `sig`.

It covers `{registry, name, seq, prev, event, via?}`, and through `prev` every line before it: the last signed line is the
signed head of the log. The payload type keeps it apart from every other signature of the same key.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.signing.dsse import Signature, pae
from onnxreg.schema.signing.keys import decode_base64

PAYLOAD_TYPE = "application/vnd.onnxreg.line.v1+json"
_SIG = re.compile(r"([0-9a-f]{64}):([A-Za-z0-9+/=]+)")

Sign = Callable[[bytes], Signature]
"""Signs bytes with some key."""
SignLine = Callable[[Mapping[str, Any]], str]
"""Makes the `sig` of a line, given its JSON value."""


def signed_bytes(registry: str, line: Mapping[str, Any]) -> bytes:
    """The bytes that the signature of a line (its JSON value) covers in the log of a registry."""
    value = {key: line[key] for key in ("seq", "prev", "event", "via") if key in line}
    value |= {"registry": registry, "name": line["event"]["name"]}
    return pae(PAYLOAD_TYPE, canonical.encode(value))


def sign_line(registry: str, sign: Sign, line: Mapping[str, Any]) -> str:
    """The `sig` of a line in the log of a registry."""
    signature = sign(signed_bytes(registry, line))
    return f"{signature.keyid}:{b64encode(signature.sig).decode()}"


def read_sig(text: str) -> Signature:
    """InputError if it is not `<key id>:<base64>`."""
    match = _SIG.fullmatch(text)
    if match is None:
        raise InputError("the signature of a line is malformed")
    return Signature(match[1], decode_base64(match[2], "the signature of a line"))
