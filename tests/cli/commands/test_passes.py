"""`reg builtin passes`: all of them, one of them, and one that is not there."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from onnxreg.cli.render.parameter_table import kind

Reg = Callable[..., Any]


def test_the_list_names_every_pass(reg: Reg) -> None:
    shown = reg("builtin", "passes")
    assert shown.status == 0
    assert {"OnnxConversion", "OrtMixedPrecision", "DynamicToFixedShape"} <= set(shown.out.split())


def test_one_pass_shows_what_its_parameters_may_be(reg: Reg) -> None:
    lines = reg("builtin", "passes", "ModelBuilder").out.splitlines()
    assert [re.split("  +", line) for line in lines[2:]] == [
        ["PARAMETER", "TYPE", "DEFAULT"],
        ["precision", "int4 | int8 | fp16 | fp32", "required"],
        ["int4_block_size", "16 | 32 | 64 | 128 | 256", "32"],
        ["int4_accuracy_level", "1 | 2 | 3 | 4"],
    ]
    assert reg("builtin", "passes", "MobileSafeRewrite").out.splitlines()[2:] == ["no parameters"]


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ({"type": "integer", "minimum": 7, "maximum": 21}, "integer >= 7, <= 21"),
        ({"type": "array", "items": {"enum": ["MatMul", "Gemm"]}}, "list of (MatMul | Gemm)"),
        ({"anyOf": [{"type": "boolean"}, {"const": "auto"}]}, "true | false | auto"),
        ({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}, "list of text"),
        ({"type": "array", "prefixItems": [{"type": "integer"}] * 3}, "list of 3 integer"),
        ({"type": "object"}, "keys and values"),
        ({}, "any value"),
    ],
)
def test_a_type_in_words(field: dict[str, Any], shown: str) -> None:
    assert kind(field) == shown


def test_json_has_a_schema_of_the_parameters(reg: Reg) -> None:
    (found,) = json.loads(reg("builtin", "passes", "DynamicToFixedShape", "--json").out)["passes"]
    assert found.keys() == {"name", "version", "summary", "package", "parameters"}
    assert list(found["parameters"]["properties"]) == ["dim_param", "dim_value", "input_name", "input_shape"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["builtin", "passes", "OnnxConversoin"], "did you mean OnnxConversion"),
        (["builtin", "profiles", "Andriod"], "did you mean android?"),
        (["builtin", "schemas", "recipie"], "did you mean recipe"),
        (["export", "x", "--task", "poling", "--name", "a"], "did you mean pooling?"),
        (["export", "x", "--profile", "andriod", "--name", "a"], "did you mean android?"),
        (["export", "--profle", "android"], "did you mean --profile?"),
        (["exprot"], "did you mean export"),
        (["key", "lst"], "did you mean list?"),
    ],
)
def test_a_name_of_the_program_that_is_unknown(reg: Reg, words: list[str], told: str) -> None:
    done = reg(*words)
    assert (done.status, told in done.err) == (2, True), done
