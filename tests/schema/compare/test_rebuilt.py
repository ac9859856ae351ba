"""A rebuilt version against the recorded one: what counts as the same, and that nothing else goes unsaid."""

import contextlib
import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.schema.edits import at, copied, nodes, refused

from onnxreg.schema.compare.rebuild_outcome import (
    DISTANCE_SHARE,
    RATE_TOLERANCE,
    RebuildComparison,
    compare,
    is_near,
)
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import Manifest

SHA = f"sha256:{'7' * 64}"


def held(old: dict[str, Any], new: dict[str, Any], contents: Any = lambda path: None) -> RebuildComparison:
    return compare(Manifest.from_json(old), Manifest.from_json(new), contents)


def test_a_version_is_what_it_is(full):
    done = held(full, full)
    assert done.matches and {file.state for file in done.files} == {"same"}
    assert (done.tools, done.checks, done.fields) == ((), (), ())


def test_tools_are_named_and_count_as_no_difference(replaced, full):
    done = held(full, replaced("/recipe/tools", {"onnx": "1.24.0", "numpy": "2.0"}))
    assert done.matches
    assert [(fact.name, fact.recorded, fact.rebuilt) for fact in done.tools] == [
        ("numpy", None, "2.0"),
        ("onnx", "1.23.2", "1.24.0"),
        ("torch", "2.13.0", None),
    ]


@pytest.mark.parametrize(
    ("pointer", "to", "difference"),
    [
        ("/artifacts/0/digest", SHA, "model.onnx differs"),
        ("/artifacts/2/files", [], "model.required_operators_and_types.config missing"),
        ("/files/2/digest", SHA, "tokenizer.json differs"),
        ("/files/0/digest", SHA, "config.json differs"),
        ("/artifacts/1/checks/0/verdict", "fail", "check"),
        ("/artifacts/1/checks/0/value", 0.1, "check"),
        ("", refused, "certification.state"),
        ("/artifacts/0/metadata/opset", 19, "metadata.opset"),
        ("/artifacts/0/operators/0/opset", 14, "operators[ai.onnx:MatMul:13]"),
        ("/labels", ["O", "B-EMAIL", "B-NAME"], "labels"),
        ("/license", "MIT", "license"),
        ("/preprocessing/mean/0", 0.486, "preprocessing.mean"),
        ("/recipe/steps/1/params", {}, "params.op_types"),
        ("/quant_recall_delta", 0.005, "quant_recall_delta"),
        ("/source/digest", SHA, "source.digest"),
    ],
)
def test_differences_are_listed(replaced, full, pointer, to, difference):
    changed = replaced(pointer, to)
    if pointer == "/artifacts/0/digest":
        for item in changed["artifacts"][1:]:
            item["parent"] = to
    for old, new in ((full, changed), (changed, full)):
        done = held(old, new)
        assert not done.matches
        found = [f"{file.path} {file.state}" for file in done.bad_files]
        found += ["check" for _ in done.checks] + [fact.name for fact in done.fields]
        expected = difference.replace("missing", "extra") if new is full else difference
        assert any(name.endswith(expected) for name in found), found


def test_an_artifact_whose_bytes_were_never_promised(replaced, full):
    changed = replaced("/artifacts/2/digest", SHA)
    for value in (full, changed):
        value["artifacts"][2]["reproducible"] = False
    done = held(full, changed)
    assert done.matches
    assert [file.state for file in done.files if file.path == "model.ort"] == ["not promised"]


@pytest.mark.parametrize(
    ("key", "old", "new", "matches"),
    [
        ("result", {"atol": {"logits": 4.5}}, {"atol": {"logits": 4.6}}, True),
        ("result", {"atol": {"a.b": 4.5}}, {"atol": {"a.b": 4.6}}, True),
        ("result", {"atol": {"logits": 4.5}}, {"atol": {"logits": 9.0}}, False),
        ("result", {"atol": {"logits": 4.5}}, {"atol": {"scores": 4.5}}, False),
        ("params", {"least": {"logits": 1.5}}, {"least": {"logits": 1.51}}, True),
        ("params", {"least": 1.5}, {"least": 1.51}, True),
        ("params", {"tolerance": 0.05}, {"tolerance": 0.051}, False),
        (
            "result",
            {"parity": {"outputs": {"x": {"max_abs_diff": 1.5}}}},
            {"parity": {"outputs": {"x": {"max_abs_diff": 1.6}}}},
            True,
        ),
        (
            "result",
            {"parity": {"outputs": {"x": {"cosine": 1}}}},
            {"parity": {"outputs": {"x": {"cosine": 0.999}}}},
            True,
        ),
        (
            "result",
            {"parity": {"outputs": {"x": {"cosine": 1}}}},
            {"parity": {"outputs": {"x": {"cosine": 0.9}}}},
            False,
        ),
        ("result", {"parity": {"samples": 11}}, {"parity": {"samples": 12}}, False),
    ],
)
def test_numbers_that_a_step_measured(replaced, key, old, new, matches):
    sides = [replaced(f"/recipe/steps/1/{key}", value) for value in (old, new)]
    assert held(*sides).matches is matches


def tensor(*data: Any, **changes: Any) -> dict[str, Any]:
    made = {"dtype": "float32", "shape": [len(data)], "data": list(data), "atol": 0.1, "rtol": 0.01}
    return {"outputs": {"logits": {**made, **changes}}}


@pytest.mark.parametrize(
    ("role", "old", "new", "state"),
    [
        ("certificate", {"recall": 0.95, "n": 4}, {"recall": 0.951, "n": 4}, "within tolerance"),
        ("certificate", {"recall": 0.95, "n": 4}, {"recall": 0.95, "n": 5}, "differs"),
        ("certificate", {"recall": 0.95}, {"recall": 0.94}, "differs"),
        ("certificate", {"recall": 1}, {"recall": 0.999}, "within tolerance"),
        ("certificate", {"state": "certified"}, {"state": "refused"}, "differs"),
        ("certificate", {"reasons": ["by 0.005"]}, {"reasons": ["by 0.006", "too"]}, "within tolerance"),
        ("certificate", {"a": 1.5}, {"a": True}, "differs"),
        ("certificate", {"digest": "a"}, {"digest": "b"}, "differs"),
        ("config", {"recall": 0.95}, {"recall": 0.951}, "differs"),
        ("golden", tensor(1.0, 2.0), tensor(1.1, 2.1), "within tolerance"),
        ("golden", tensor(1.0, 2.0), tensor(1.0, 2.2), "differs"),
        ("golden", tensor(1.0, 2.0), tensor(1.0), "differs"),
        ("golden", tensor(1.0), tensor(1.0, dtype="float16"), "differs"),
        ("golden", tensor(1.0), tensor(1.0, rtol=9.0), "differs"),
        ("golden", tensor(1.0), tensor(5.0, atol=9.0), "differs"),
        ("golden", tensor(1.0), tensor(1.0, atol=0.109), "within tolerance"),
        ("golden", tensor(1.0), tensor("1.0"), "differs"),
        ("golden", tensor(1.0, atol="wide"), tensor(1.1, atol="wide"), "differs"),
    ],
)
def test_numbers_in_evidence(replaced, full, role, old, new, state):
    full["files"][3]["role"] = role
    changed = copy.deepcopy(full)
    changed["files"][3]["digest"] = SHA
    done = held(full, changed, lambda path: (json.dumps(old).encode(), json.dumps(new).encode()))
    (found,) = [file for file in done.files if file.state != "same"]
    assert (found.role, found.state) == (role, state)
    assert bool(found.where) is (state == "differs")


def test_a_certificate_that_is_no_json_differs_in_bytes(full):
    full["files"][3]["role"] = "certificate"
    changed = copy.deepcopy(full)
    changed["files"][3]["digest"] = SHA
    done = held(full, changed, lambda path: (b"{", b"{}"))
    assert [file.where for file in done.bad_files] == [("bytes",)]
    assert "not here" in held(full, changed).bad_files[0].where[0]


@given(st.floats(-1, 1), st.floats(-1, 1))
def test_rates_and_distances(old, new):
    assert is_near("character_recall", old, new) is (abs(old - new) <= RATE_TOLERANCE)
    assert is_near("max_abs_diff", old, new) is (
        abs(old - new) <= max(RATE_TOLERANCE, DISTANCE_SHARE * abs(old))
    )


def another(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str() if value.startswith("sha256:"):
            return SHA
        case str():
            return f"{value}x"
        case _:
            return value


SILENT = re.compile(r"/pieces/|/size$|/reasons/|/evidence/(artifact|report)$|/recipe/tools/")
"""What follows from bytes, what repeats numbers in words, and tools, which are told apart."""


def test_no_change_of_a_field_goes_unsaid(full):
    recorded = Manifest.from_json(full)
    tried = 0
    for path in nodes(full):
        pointer, value = "".join(f"/{key}" for key in path), copied(full)
        at(value, path[:-1])[path[-1]] = another(at(full, path))
        if SILENT.search(pointer) or value == full:
            continue
        with contextlib.suppress(InputError):
            changed = Manifest.from_json(value)
            tried += 1
            assert not compare(recorded, changed, lambda path: None).matches, pointer
    assert tried > 150
