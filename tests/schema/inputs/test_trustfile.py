"""The reader's trust file: strict, and what it says of which model."""

import pytest

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.trust_file import read_trust
from onnxreg.schema.signing.keys import PublicKey

KEY = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
ID = "0123456789abcdef0123456789abcdef"
GOOD = f"""
[keys.release]
key = "{KEY}"
models = ["acme/*"]
[keys.release.revoked]
date = 2026-11-20
reason = "stolen"
until = [{{registry = "{ID}", model = "acme/pii", seq = 5, head = "sha256:{"0" * 64}"}}]
[[require]]
models = ["acme/*"]
registry = "{ID}"
lines = true
keys = ["release"]
"""


def test_a_valid_file_is_read() -> None:
    trust = read_trust(GOOD.encode(), "trust.toml")
    key = trust.keys[PublicKey.parse(KEY).id]
    assert (key.name, key.covers("acme/pii"), key.covers("lab/pii")) == ("release", True, False)
    assert key.revoked is not None
    assert (str(key.revoked.date), key.revoked.until[0].seq) == ("2026-11-20", 5)
    assert len(trust.required(ID, "acme/pii")) == 1
    assert trust.required("f" * 32, "acme/pii") == trust.required(ID, "lab/pii") == []


BAD = {
    "no TOML": "keys",
    "an unknown table": "[other]\n",
    "a misspelt requirement": GOOD.replace("lines = true", "line = true"),
    "a requirement of nothing": GOOD.replace("lines = true", "lines = false"),
    "a requirement of an unknown key": GOOD.replace('keys = ["release"]', 'keys = ["relase"]'),
    "a revocation of an unknown key": GOOD.replace("[keys.release.revoked]", "[keys.relase.revoked]"),
    "a revocation without a reason": GOOD.replace('reason = "stolen"', ""),
    "a key that is revoked twice": GOOD + "[keys.release.revoked]\ndate = 2026-11-21\n",
    "a key with a name of its own": GOOD.replace('key = "ed', 'name = "x"\nkey = "ed'),
    "a key that replaces itself": GOOD.replace('key = "ed', 'replaces = "release"\nkey = "ed'),
    "a key that replaces an unknown one": GOOD.replace('key = "ed', 'replaces = "other"\nkey = "ed'),
    "no key": GOOD.replace(KEY, "ed25519:AAAA"),
    "an unknown kind of key": GOOD.replace("ed25519:", "rsa:"),
    "no base64": GOOD.replace("11qY", "1!qY"),
    "one key under two names": GOOD + f'[keys.other]\nkey = "{KEY}"\n',
    "no registry id": GOOD.replace(f'registry = "{ID}"\nlines', 'registry = "origin"\nlines'),
    "a key that is no text": GOOD.replace(f'key = "{KEY}"', "key = 5"),
    "text for a flag": GOOD.replace("lines = true", 'lines = "true"'),
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_invalid_files_are_refused_by_name(text: str) -> None:
    with pytest.raises(InputError) as error:
        read_trust(text.encode(), "trust.toml")
    assert error.value.message.startswith("trust.toml")


def test_a_demand_for_witnesses_says_what_takes_its_place() -> None:
    document = b'[[require]]\nmodels = ["a/*"]\nwitnesses = {any = 1, of = ["w"], max_age = "1h"}\n'
    with pytest.raises(InputError, match="witnesses") as caught:
        read_trust(document, "trust.toml")
    assert "lines = true" in caught.value.hint
