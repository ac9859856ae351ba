"""`reg passes`: all of them, one of them, and one that is not there."""

import json
from collections.abc import Callable
from typing import Any

Reg = Callable[..., Any]


def test_the_list_names_every_pass(reg: Reg) -> None:
    shown = reg("passes")
    assert shown.status == 0
    assert {"OnnxConversion", "OrtMixedPrecision", "DynamicToFixedShape"} <= set(shown.out.split())


def test_one_pass_shows_its_parameters_and_defaults(reg: Reg) -> None:
    lines = reg("passes", "OnnxIODataTypeConverter").out.splitlines()
    assert [line.split() for line in lines[2:]] == [
        ["name_pattern", '"logits"'],
        ["source_dtype", "10"],
        ["target_dtype", "1"],
    ]


def test_json_has_a_schema_of_the_parameters(reg: Reg) -> None:
    (found,) = json.loads(reg("passes", "DynamicToFixedShape", "--json").out)["passes"]
    assert found.keys() == {"name", "version", "summary", "package", "parameters"}
    assert list(found["parameters"]["properties"]) == ["dim_param", "dim_value", "input_name", "input_shape"]


def test_an_unknown_pass_is_not_found(reg: Reg) -> None:
    shown = reg("passes", "OnnxConversoin")
    assert shown.status == 3
    assert "OnnxConversion" in shown.err
