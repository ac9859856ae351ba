"""The vectors of docs/resolve.md: stated by hand, met by the code here and by the clients in JavaScript and Java."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.schema.resolving import resolve_in

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.log.state import State
from onnxreg.schema.manifest.operators import read_operator_set
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.requirements import Query

VECTORS = Path(__file__).parents[2] / "vectors"

Json = dict[str, Any]
FILES = {
    path.stem: json.loads(path.read_text("utf-8")) for path in sorted((VECTORS / "resolve").glob("*.json"))
}
CASES = [
    pytest.param(document, vector, id=f"{name}: {vector['name']}")
    for name, document in FILES.items()
    for vector in document["vectors"]
]
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


@pytest.mark.parametrize(("document", "vector"), CASES)
def test_resolving_gives_what_the_vector_says(document: Json, vector: Json) -> None:
    found = answer(document, vector)
    assert {key: found.get(key) for key in vector["expect"]} == vector["expect"]


def test_there_are_enough_and_they_reach_every_code() -> None:
    vectors = [vector for document in FILES.values() for vector in document["vectors"]]
    assert len(vectors) >= 150
    assert len({vector["name"] for vector in vectors}) == len(vectors)
    seen = {each["code"] for vector in vectors for each in vector["expect"].get("rejected", ())}
    assert seen == CODES
    documented = (VECTORS.parents[1] / "docs" / "resolve.md").read_text("utf-8")
    assert all(f"| `{code}` |" in documented for code in CODES)


def test_every_part_of_a_file_is_used_and_fits_any_language() -> None:
    for document in FILES.values():
        assert {vector["state"] for vector in document["vectors"]} == set(document["states"])
        canonical.decode(json.dumps(document).encode())
        for digest, operators in document["operator_sets"].items():
            assert str(Digest.of(canonical.encode(operators))) == digest
