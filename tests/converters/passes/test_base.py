"""The contract between a pass and its caller."""

from collections.abc import Mapping
from typing import Any

import pytest

from onnxreg.converters.passes.base import Pass, PassParams, run
from onnxreg.schema.core.errors import ConversionError, InputError


class Double(Pass[list[int], list[int]]):
    id = "Double"
    version = 3

    class Params(PassParams):
        times: int = 2

    def requires(self, subject: list[int]) -> None:
        if not subject:
            raise InputError("nothing to double")

    def observe(self, subject: list[int]) -> Mapping[str, Any]:
        return {"length": len(subject)}

    def apply(self, subject: list[int]) -> list[int]:
        subject *= self.params.times
        return subject

    def ensures(self, before: Mapping[str, Any], after: list[int]) -> dict[str, Any]:
        if len(after) != 2 * before["length"]:
            raise ConversionError("not doubled")
        return {"length": len(after)}


def test_a_step_records_what_was_asked_and_what_was_got() -> None:
    after, step = run("d", Double(), [1, 2], "origin")
    assert after == [1, 2, 1, 2]
    assert step.to_json() == {
        "name": "d",
        "pass": "Double",
        "version": 3,
        "params": {"times": 2},
        "input": "origin",
        "result": {"length": 4},
    }


def test_requirements_come_first_and_postconditions_last() -> None:
    with pytest.raises(InputError, match="nothing to double"):
        run("d", Double(), [])
    with pytest.raises(ConversionError, match="not doubled"):
        run("d", Double(times=3), [1])


@pytest.mark.parametrize("params", [{"times": "2"}, {"tims": 2}], ids=["type", "unknown key"])
def test_a_wrong_parameter_names_pass_and_parameter(params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"a parameter of pass Double is not valid at {next(iter(params))}"):
        Double(**params)
