"""What people get told of a document that is not valid."""

from typing import Any

import pytest

from onnxreg.schema.core.document import called
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import JobRow, RecipeFile

STEP = {"name": "fp32", "pass": "OnnxConversion"}


def refused(value: dict[str, Any]) -> InputError:
    with pytest.raises(InputError) as caught:
        RecipeFile.from_json({"task": "pooling", "steps": [STEP], **value}, "r.yaml")
    return caught.value


def test_a_step_is_told_by_its_name_or_counted_from_1() -> None:
    assert called(("steps", 0, "params"), {"steps": [STEP]}) == "steps[fp32].params"
    assert refused({"steps": [STEP, {"name": "b"}]}).message == (
        "r.yaml is not valid at steps[b].pass: it is missing"
    )
    assert "at steps[#2].name: it is missing" in refused({"steps": [STEP, {"pass": "x"}]}).message


def test_a_key_that_is_near_is_told() -> None:
    error = refused({"output": []})
    assert error.message == "r.yaml is not valid at output: there is no such key"
    assert error.hint.startswith("did you mean output")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"profile_version": "1"}, "profile_version: it must be an integer"),
        ({"options": []}, "options: it has no keys"),
        ({"steps": []}, "steps: it needs at least 1"),
        ({"checks": [{"metric": "speed", "max": 1}]}, "checks[#1].metric: it can only be 'max_abs_diff'"),
        ({"benchmark": {"runs": 0}}, "benchmark.runs: it must be more than 0"),
        ({"steps": [{**STEP, "optional": 1}]}, "steps[fp32].optional: it must be true or false"),
    ],
)
def test_it_is_told_in_plain_words(value: dict[str, Any], told: str) -> None:
    assert f"r.yaml is not valid at {told}" in refused(value).message


def test_a_number_that_was_meant_as_a_text() -> None:
    with pytest.raises(InputError, match="at version: it must be text: write it in quotes"):
        JobRow.from_json({"source": "a", "task": "pooling", "version": 1.5}, "row 1")
