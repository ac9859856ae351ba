"""A family of stages, and which graphs are alternatives."""

from typing import Any

import pytest

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.family import MAX_STAGES, Graph, ModelFamily, check_alternatives, pipeline_of
from onnxreg.schema.manifest.parts import Tensor

PIPELINE = pipeline_of({"det.onnx": "detector", "rec.onnx": "recognizer", "det-int8.onnx": "detector"})
IMAGES: Tensor = ("float32", (None, 3, None, None))


def graph(inputs: dict[str, Tensor], outputs: dict[str, Tensor]) -> Graph:
    return inputs, outputs


def test_a_stage_has_all_its_files() -> None:
    family = ModelFamily.from_json(PIPELINE)
    assert {each.name: list(each.artifacts) for each in family.entries} == {
        "detector": ["det.onnx", "det-int8.onnx"],
        "recognizer": ["rec.onnx"],
    }
    assert family.to_json()["members"][0]["role"] == "stage"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"routing": {"apple": None}}, "neither edges nor routing"),
        (
            {"edges": [{"source": "detector", "output": "y", "target": "stage", "input": "x"}]},
            "neither edges",
        ),
        (
            {"members": [*PIPELINE["members"], {"name": "ood", "role": "ood", "artifacts": ["o.onnx"]}]},
            "ood is not a stage",
        ),
        ({"members": [*PIPELINE["members"], PIPELINE["members"][0]]}, "two members are called detector"),
        (pipeline_of({f"{n}.onnx": f"s{n}" for n in range(MAX_STAGES + 1)}), f"at most {MAX_STAGES} stages"),
    ],
)
def test_a_pipeline_is_nothing_but_stages(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ModelFamily.from_json({**PIPELINE, **more})


def test_files_that_describe_a_pipeline_may_be_a_member() -> None:
    about = {"name": "about", "role": "metadata", "files": ["about.json"]}
    assert len(ModelFamily.from_json({"members": [*PIPELINE["members"], about]}).stages) == 2


SAME = graph({"x": IMAGES}, {"y": ("float32", (None, 10))})


@pytest.mark.parametrize(
    "other",
    [
        graph({"x": ("float16", (None, 3, None, None))}, {"y": ("float16", (None, 10))}),
        graph({"x": ("float32", (1, 3, 224, 224))}, {"y": ("float32", (1, 10))}),
    ],
    ids=["half", "fixed"],
)
def test_sizes_and_float_types_may_differ(other: Graph) -> None:
    check_alternatives({"a": SAME, "b": other})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (graph({"z": IMAGES}, SAME[1]), "input x is in one of them only"),
        (graph(SAME[0], {"y": ("float32", (None, 5, 10))}), "output y has 2 axes in one and 3 in the other"),
        (graph({"x": ("uint8", (None, 3, None, None))}, SAME[1]), "input x is float32 in one and uint8"),
    ],
    ids=["name", "axes", "type"],
)
def test_alternatives_share_inputs_and_outputs(other: Graph, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_alternatives({"a": SAME, "b": other})
