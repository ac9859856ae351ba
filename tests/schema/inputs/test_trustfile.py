"""Trust files, family files, profiles and facts of a dossier: strict, and what they say."""

from typing import Any

import pytest

from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.inputs.dossier_profile import DossierProfile, OwnerFacts
from onnxreg.schema.inputs.family_file import FamilyFile, SizeLimits
from onnxreg.schema.inputs.trust_file import read_trust
from onnxreg.schema.signing.dsse import PublicKey

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


def test_a_valid_file_is_read():
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
def test_invalid_files_are_refused_by_name(text):
    with pytest.raises(InputError) as error:
        read_trust(text.encode(), "trust.toml")
    assert error.value.message.startswith("trust.toml")


def test_a_demand_for_witnesses_says_what_takes_its_place():
    document = b'[[require]]\nmodels = ["a/*"]\nwitnesses = {any = 1, of = ["w"], max_age = "1h"}\n'
    with pytest.raises(InputError, match="witnesses") as caught:
        read_trust(document, "trust.toml")
    assert "lines = true" in caught.value.hint


DOCUMENT: dict[str, Any] = {
    "family": 1,
    "name": "acme/crops",
    "backbone": {"checkpoint": "swin"},
    "heads": {"folder": "heads"},
}


def sizes(**stated: Any) -> SizeLimits:
    return FamilyFile.from_json(DOCUMENT | {"limits": {"size": stated}}).limits.size


def test_a_stated_size_is_a_limit_and_no_other():
    head = sizes(head={"int8": "150kB"}).head
    assert (head.float32, head.float16, head.int8) == (None, None, 150_000)


@pytest.mark.parametrize("stated", [{"head": {"INT8": "1B"}}, {"fused": {"float16": 1}}, {"tail": {}}])
def test_a_size_of_what_there_is_not_is_refused(stated):
    with pytest.raises(RegError):
        sizes(**stated)


OOD = {"fit": "fit.npz", "calibrate": "calibrate.npz"}


@pytest.mark.parametrize(
    ("limit", "without", "needed"),
    [
        ("ood_true_positive", {"evaluation": "held-out.npz"}, {"ood": OOD | {"outliers": "far.npz"}}),
        ("ood_true_positive", {"ood": OOD}, {"ood": OOD | {"outliers": "far.npz"}}),
    ],
)
def test_a_stated_limit_needs_what_it_is_measured_on(limit, without, needed):
    FamilyFile.from_json(DOCUMENT | without)
    FamilyFile.from_json(DOCUMENT | without | {"limits": {limit: None}})
    FamilyFile.from_json(DOCUMENT | needed | {"limits": {limit: 0.5}})
    with pytest.raises(RegError, match=f"limits.{limit} cannot be measured"):
        FamilyFile.from_json(DOCUMENT | without | {"limits": {limit: 0.5}})


@pytest.mark.parametrize("percentile", [0.95, 50, 100])
def test_the_percentile_is_above_half_and_below_all(percentile):
    with pytest.raises(RegError, match=r"ood\.percentile"):
        FamilyFile.from_json(DOCUMENT | {"ood": OOD | {"percentile": percentile}})


def test_the_limits_of_who_states_none():
    limits = FamilyFile.from_json(DOCUMENT).limits
    assert (limits.parity.float32, limits.size.head.int8) == (0.01, None)
    assert (limits.latency_p95, limits.ood_true_positive) == (200.0, 0.9)


def test_a_limit_that_is_no_number_is_named():
    with pytest.raises(RegError, match="out of range: inf"):
        FamilyFile.from_json(DOCUMENT | {"limits": {"latency_p95": float("inf")}})


BAD_FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "exactly one of"),
    "two origins": ({"owner": "a", "generate": "history"}, "exactly one of"),
    "a source without a place": ({"from": "manifest"}, "value or columns"),
    "both places": ({"from": "manifest", "value": "/a", "columns": [["A", "0"]]}, "value or columns"),
    "no columns": ({"from": "manifest", "rows": "/a/*", "columns": []}, "columns"),
    "a generator with a place": ({"generate": "history", "value": "/a"}, "value or columns"),
    "an unknown generator": ({"generate": "poem"}, "generate"),
    "an unknown source": ({"from": "files", "value": "/a"}, "from"),
    "lines of a manifest": ({"from": "manifest", "value": "/a", "kinds": ["tag"]}, "choose lines"),
    "no pointer": ({"from": "manifest", "value": "a"}, "not a JSON pointer"),
    "a misspelt key": ({"from": "manifest", "value": "/a", "lable": "x"}, "there is no such key"),
    "an owner's key in capitals": ({"owner": "Provider"}, "should match pattern"),
}


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_a_field_that_means_nothing_is_refused(case):
    field, message = BAD_FIELDS[case]
    sections = [{"title": "A", "fields": [{"label": "x", **field}]}]
    with pytest.raises(InputError, match=message):
        DossierProfile.from_json({"dossier": 1, "name": "a", "title": "A", "sections": sections})


def test_facts_are_texts_or_paragraphs():
    facts = OwnerFacts.from_json({"facts": 1, "name": "acme/pii", "statements": {"a": "x", "b": ["y", "z"]}})
    assert [facts.paragraphs(key) for key in "abc"] == [("x",), ("y", "z"), ()]
