"""What people get told of a document that is not valid."""

from typing import Any

import pytest

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import JobRow, RecipeFile

STEP = {"name": "fp32", "pass": "OnnxConversion"}


def refused(value: dict[str, Any]) -> InputError:
    with pytest.raises(InputError) as caught:
        RecipeFile.from_json({"task": "pooling", "steps": [STEP], **value}, "r.yaml")
    return caught.value


def test_a_key_that_is_near_is_told() -> None:
    error = refused({"output": []})
    assert error.message == "r.yaml is not valid at output: there is no such key"
    assert error.hint.startswith("did you mean output")


def test_of_several_faults_the_unknown_key_is_first() -> None:
    message = refused({"steps": [], "task": 1, "profile": 2, "source": 3, "colour": 4}).message
    assert message == "r.yaml is not valid at colour: there is no such key (and 4 more)"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"profile_version": "1"}, "profile_version: it must be a valid integer"),
        ({"options": []}, "options: it must be an object"),
        ({"steps": []}, "steps: Tuple should have at least 1 item"),
        ({"checks": [{"metric": "speed", "max": 1}]}, "checks.0.metric: it must be 'max_abs_diff'"),
        ({"benchmark": {"runs": 0}}, "benchmark.runs: it must be greater than 0"),
        ({"steps": [{**STEP, "optional": 1}]}, "steps.0.optional: it must be a valid boolean"),
    ],
)
def test_it_is_told_in_plain_words(value: dict[str, Any], told: str) -> None:
    assert f"r.yaml is not valid at {told}" in refused(value).message


def test_a_number_that_was_meant_as_a_text() -> None:
    with pytest.raises(InputError, match="at version: it must be a valid string: write it in quotes"):
        JobRow.from_json({"source": "a", "task": "pooling", "version": 1.5}, "row 1")
