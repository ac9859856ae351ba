"""The vectors of docs/resolve.md and docs/rollouts.md: stated by hand, met by the code here and by the clients."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.schema.resolving import resolve_in

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.log.state import Rollout, State
from onnxreg.schema.manifest.operators import read_operator_set
from onnxreg.schema.query.device import DEVICE_FIELDS, PARTS, Device, admits, device_values, position
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.resolve import Query

VECTORS = Path(__file__).parents[2] / "vectors"

Json = dict[str, Any]
FILES = {
    path.stem: json.loads(path.read_text("utf-8")) for path in sorted((VECTORS / "resolve").glob("*.json"))
}
WORDS = (
    "member contract format precision not-certified too-large recall context where not-held runtime ort-format opset "
    "ir-version domain provider ram space latency contrib operators types ranked-lower yanked prerelease expired purged"
)
CODES = set(WORDS.split())


def answer(document: Json, vector: Json) -> Json:
    """What the code under test says, in the shape of a vector's `expect`."""
    line = canonical.encode(document["states"][vector["state"]])
    sets = {
        Digest.parse(digest): read_operator_set(json.dumps(operators).encode())
        for digest, operators in document["operator_sets"].items()
    }
    try:
        query = Query.read(vector["query"])
        device = None if vector["device"] is None else Device.read(vector["device"])
        outcome = resolve_in(State.decode(line), query, device, sets.__getitem__, vector["tag"])
    except RegError as error:
        return {"error": error.family}
    candidate, chosen = outcome.candidate, outcome.artifact
    assert all(rejection.detail for rejection in outcome.rejected)
    rejected = [
        {"version": str(each.version), "artifact": each.artifact, "code": each.code}
        for each in outcome.rejected
    ]
    return {
        "version": str(candidate.version) if candidate else None,
        "artifact": chosen.path if chosen else None,
        "size": outcome.size if chosen else None,
        "rejected": rejected,
    }


@pytest.mark.parametrize("name", FILES)
def test_resolving_gives_what_the_vectors_say(name):
    for vector in FILES[name]["vectors"]:
        found = answer(FILES[name], vector)
        assert {key: found.get(key) for key in vector["expect"]} == vector["expect"], vector["name"]


def test_there_are_enough_and_they_reach_every_code():
    vectors = [vector for document in FILES.values() for vector in document["vectors"]]
    assert len(vectors) >= 150
    assert len({vector["name"] for vector in vectors}) == len(vectors)
    seen = {each["code"] for vector in vectors for each in vector["expect"].get("rejected", ())}
    assert seen == CODES
    documented = (VECTORS.parents[1] / "docs" / "resolve.md").read_text("utf-8")
    assert all(f"| `{code}` |" in documented for code in CODES)


def test_every_part_of_a_file_is_used_and_fits_any_language():
    for document in FILES.values():
        assert {vector["state"] for vector in document["vectors"]} == set(document["states"])
        canonical.decode(json.dumps(document).encode())
        for digest, operators in document["operator_sets"].items():
            assert str(Digest.of(canonical.encode(operators))) == digest


ROLLOUTS = json.loads((VECTORS / "rollout.json").read_text("utf-8"))
SALT = "0123456789abcdef" * 2
TARGET = {"to": "2.0.0", "manifest": f"sha256:{'0' * 64}", "salt": SALT, "seq": 1, "percent": 5}


def rollout(**changes: Any) -> Rollout:
    return Rollout.read({**TARGET, **changes})


def test_devices_are_in_or_out():
    cases = ROLLOUTS["admissions"]
    assert len(cases) > 100 and {case["in"] for case in cases} == {True, False}
    for case in cases:
        assert admits(rollout(salt=case["salt"], percent=case["percent"]), case["seed"]) == case["in"], case


@pytest.mark.parametrize("case", ROLLOUTS["cohorts"], ids=lambda case: str(case["where"]))
def test_cohorts(case):
    device = None if case["device"] is None else Device.read(case["device"])
    if "error" in case:
        with pytest.raises(InputError):
            parse(case["where"], DEVICE_FIELDS)
    else:
        everybody = rollout(percent=100, where=case["where"])
        assert admits(everybody, "0" * 64, device) == case["in"]


@pytest.mark.parametrize("vector", ROLLOUTS["vectors"], ids=lambda vector: str(vector["name"]))
def test_questions(vector):
    state = State.decode(canonical.encode(ROLLOUTS["states"][vector["state"]]))
    device = None if vector["device"] is None else Device.read(vector["device"])
    try:
        query = Query.read(vector["query"])
        outcome = resolve_in(state, query, device, tag=vector["tag"], seed=vector["seed"])
    except RegError as error:
        assert {"error": error.family} == vector["expect"]
        return
    assert outcome.candidate is not None and outcome.artifact is not None
    rejected = [
        {"version": str(item.version), "artifact": item.artifact, "code": item.code}
        for item in outcome.rejected
    ]
    answer = {
        "version": str(outcome.candidate.version),
        "artifact": outcome.artifact.path,
        "rejected": rejected,
    }
    assert answer == vector["expect"]


@pytest.mark.parametrize("value", [0, -1, 100.01, 0.001, 33.333, "5", None, True, float("nan"), 1e300])
def test_a_wrong_percentage_is_refused(value):
    with pytest.raises(InputError):
        rollout(percent=value)


@pytest.mark.parametrize("salt", ["", "0" * 31, "G" * 32, "A" * 32, 7])
def test_a_wrong_salt_is_refused(salt):
    with pytest.raises(InputError):
        rollout(salt=salt)


def test_a_device_keeps_what_it_has_as_the_share_grows():
    draw = random.Random(5)
    for _ in range(1000):
        seed = draw.randbytes(32).hex()
        admitted = [admits(rollout(percent=share), seed) for share in (1, 5, 20, 50, 100)]
        assert admitted == sorted(admitted) and admitted[-1]


def test_an_expression_is_written_in_one_way():
    text = str(parse("platform=android  and app_version>=3.2.0", DEVICE_FIELDS))
    assert text == "platform = 'android' and app_version >= '3.2.0'"
    assert device_values(Device("1.23"))["ort"] == "1.23.0"


@pytest.mark.more
@pytest.mark.parametrize("percent", [20, *(pytest.param(n, marks=pytest.mark.large) for n in (1, 5, 50))])
def test_a_million_seeds_are_within_the_binomial_interval(percent):
    """The 99.9 % interval; and two rollouts of the same share are independent."""
    from scipy.stats import binom

    count, limit = 1_000_000, percent * 100 * 2**32
    other = hashlib.sha256(SALT.encode()).hexdigest()[:32]
    draw = random.Random(percent)
    first = second = both = 0
    for _ in range(count):
        seed = draw.randbytes(32).hex()
        inside, beside = position(SALT, seed) < limit, position(other, seed) < limit
        first, second, both = first + inside, second + beside, both + (inside and beside)
    share = percent / 100
    for observed, expected in ((first, share), (second, share), (both, share**2)):
        least, most = binom.interval(0.999, count, expected)
        assert least <= observed <= most
    assert PARTS == 10_000
