"""What people write and get told: lengths of time, near names, and documents that are not valid."""

from typing import Any

import pytest

from onnxreg.schema.core.errors import InputError, nearest, suggest
from onnxreg.schema.core.units import parse_duration
from onnxreg.schema.inputs.recipe_file import JobRow, RecipeFile

LENGTHS = {"0s": 0, "90s": 90, "15min": 900, "12h": 43_200, "7d": 604_800, "2w": 1_209_600}
NAMES = ["OnnxConversion", "OrtFormat", "GoldenVectors"]


def test_a_length_of_time() -> None:
    assert {text: parse_duration(text) for text in LENGTHS} == LENGTHS


@pytest.mark.parametrize(
    "text", ["", "7", "d", "-1d", "1.5d", "7 d", "7D", "7m", "1d2h", "\u0667d", "9999999999s"]
)
def test_no_length_of_time(text: str) -> None:
    with pytest.raises(InputError, match="not a length of time"):
        parse_duration(text)


def test_a_near_name_goes_before_the_list_of_all() -> None:
    assert nearest("ortformat", NAMES) == ["OrtFormat"]
    assert suggest("GoldenVector", NAMES) == "did you mean GoldenVectors?"
    assert suggest("zzz", NAMES) == "one of: OnnxConversion, OrtFormat, GoldenVectors"
    assert suggest("zzz", NAMES, "look elsewhere") == "look elsewhere"
    assert suggest("aab", ["aaa", "aac"]) == "did you mean aac or aaa?"


STEP = {"name": "fp32", "pass": "OnnxConversion"}


def refused(value: dict[str, Any]) -> InputError:
    with pytest.raises(InputError) as caught:
        RecipeFile.from_json({"task": "pooling", "steps": [STEP], **value}, "r.yaml")
    return caught.value


def test_an_unknown_key_is_named() -> None:
    assert refused({"output": []}).message == "r.yaml is not valid at output: there is no such key"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"profile_version": "1"}, "profile_version: it must be a valid integer"),
        ({"options": []}, "options: it must be an object"),
        ({"steps": []}, "steps: Tuple should have at least 1 item"),
        ({"checks": [{"metric": "speed", "max": 1}]}, "checks.0.metric: it must be 'max_abs_diff'"),
        ({"benchmark": {"runs": 0}}, "benchmark.runs: it must be greater than 0"),
        ({"steps": [{**STEP, "optional": 1}]}, "steps.0.optional: it must be a valid boolean"),
        (
            {"steps": [], "task": 1, "profile": 2, "source": 3, "colour": 4},
            "colour: there is no such key (and 4 more)",
        ),
    ],
)
def test_it_is_told_in_plain_words(value: dict[str, Any], told: str) -> None:
    """Of several faults the unknown key is first."""
    assert refused(value).message.startswith(f"r.yaml is not valid at {told}")


def test_a_number_that_was_meant_as_a_text() -> None:
    with pytest.raises(InputError, match="at version: it must be a valid string: write it in quotes"):
        JobRow.from_json({"source": "a", "task": "pooling", "version": 1.5}, "row 1")
