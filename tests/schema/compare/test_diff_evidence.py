"""What the diff says of labels, files, checks, certificates and recipes: each edit with its kind, path and severity."""

import copy
from typing import Any

import pytest

from onnxreg.schema.compare.manifests import diff
from onnxreg.schema.manifest.manifest import Manifest

FP32 = "artifacts[onnx-android/float32/model.onnx]"
INT8 = "artifacts[onnx-int8/int8/model_int8.onnx]"
ORT = "artifacts[ort-android/float32/model.ort]"
NEW_FILE = {"role": "vocabulary", "path": "vocab.txt", "digest": "sha256:" + "0" * 64, "size": 1}


def sha(number: int) -> str:
    return f"sha256:{number:064x}"


def not_certified(old: dict[str, Any], place: int, certification: dict[str, Any]) -> dict[str, Any]:
    """With another certification of one artifact; the keys of version 1 follow."""
    old["artifacts"][place]["certification"] = certification
    return {**old, "certified": False, "quantization": {**old["quantization"], "certified": False}}


CASES: dict[str, tuple[str, Any, str, str, str]] = {
    "label added": ("/labels", ["O", "B-NAME", "B-EMAIL", "B-ID"], "label-added", "labels[B-ID]", "notable"),
    "label removed": ("/labels", ["O", "B-NAME"], "label-removed", "labels[B-EMAIL]", "breaking"),
    "labels reordered": ("/labels", ["O", "B-EMAIL", "B-NAME"], "label-reordered", "labels", "breaking"),
    "label in front": ("/labels", ["X", "O", "B-NAME", "B-EMAIL"], "label-reordered", "labels", "breaking"),
    "tokenizer": (
        "/files/2/digest",
        sha(9),
        "companion-changed",
        "files[tokenizer:tokenizer.json].digest",
        "degrading",
    ),
    "config": ("/files/0/digest", sha(9), "companion-changed", "files[config:config.json].digest", "notable"),
    "labels file removed": ("/files/1", ..., "companion-removed", "files[labels:id2label.json]", "breaking"),
    "file added": (
        "/files",
        lambda old: [*old, NEW_FILE],
        "companion-added",
        "files[vocabulary:vocab.txt]",
        "notable",
    ),
    "asked": (
        "/artifacts/1/quantization/requested/scheme",
        "static",
        "quantization-asked-changed",
        f"{INT8}.quantization.requested.scheme",
        "notable",
    ),
    "got": (
        "/artifacts/1/quantization/measured/weights_quantized",
        3,
        "quantization-got-changed",
        f"{INT8}.quantization.measured.weights_quantized",
        "notable",
    ),
    "loss grows": (
        "/artifacts/1/checks/0/value",
        0.004,
        "check-value-changed",
        f"{INT8}.checks[recall/quant_recall_delta].value",
        "degrading",
    ),
    "loss shrinks": (
        "/artifacts/1/checks/0/value",
        0.0001,
        "check-value-changed",
        f"{INT8}.checks[recall/quant_recall_delta].value",
        "notable",
    ),
    "agreement falls": (
        "/artifacts/1/checks/1/value",
        0.9,
        "check-value-changed",
        f"{INT8}.checks[parity/argmax_agreement].value",
        "degrading",
    ),
    "distance grows": (
        "/artifacts/1/checks/2/value",
        0.0045,
        "check-value-changed",
        f"{INT8}.checks[parity/max_abs_diff].value",
        "notable",
    ),
    "metric falls": (
        "/artifacts/1/checks/3/value",
        0.81,
        "check-value-changed",
        f"{INT8}.checks[sts/spearman].value",
        "degrading",
    ),
    "metric rises": (
        "/artifacts/1/checks/3/value",
        0.85,
        "check-value-changed",
        f"{INT8}.checks[sts/spearman].value",
        "notable",
    ),
    "metric for which lower is better rises": (
        "/artifacts/1/checks/4/value",
        0.003,
        "check-value-changed",
        f"{INT8}.checks[sts/spearman/loss].value",
        "degrading",
    ),
    "metric for which lower is better falls": (
        "/artifacts/1/checks/4/value",
        -0.003,
        "check-value-changed",
        f"{INT8}.checks[sts/spearman/loss].value",
        "notable",
    ),
    "direction": (
        "/artifacts/1/checks/3/direction",
        "lower",
        "check-changed",
        f"{INT8}.checks[sts/spearman].direction",
        "notable",
    ),
    "no longer measured": (
        "/artifacts/1/checks/0/value",
        None,
        "check-value-changed",
        f"{INT8}.checks[recall/quant_recall_delta].value",
        "degrading",
    ),
    "verdict": (
        "/artifacts/1/checks/0/verdict",
        "fail",
        "check-verdict-changed",
        f"{INT8}.checks[recall/quant_recall_delta].verdict",
        "degrading",
    ),
    "check gone": (
        "/artifacts/1/checks/0",
        ...,
        "check-removed",
        f"{INT8}.checks[recall/quant_recall_delta]",
        "degrading",
    ),
    "refused": (
        "",
        lambda old: not_certified(old, 1, {**old["artifacts"][1]["certification"], "state": "refused"}),
        "certification-changed",
        f"{INT8}.certification.state",
        "degrading",
    ),
    "refused where nothing was known": (
        "",
        lambda old: not_certified(old, 0, {"state": "refused"}),
        "certification-added",
        f"{FP32}.certification.state",
        "degrading",
    ),
    "unknown where nothing was said": (
        "/artifacts/0/certification",
        {"state": "unknown"},
        "certification-added",
        f"{FP32}.certification.state",
        "cosmetic",
    ),
    "suite": (
        "/artifacts/1/certification/evidence/suite",
        sha(91),
        "certification-basis-changed",
        f"{INT8}.certification.evidence.suite",
        "notable",
    ),
    "profile": ("/recipe/profile_version", 2, "recipe-changed", "recipe.profile_version", "notable"),
    "step parameter": (
        "/recipe/steps/1/params/op_types",
        ["Gemm"],
        "step-changed",
        "recipe.steps[int8].params.op_types[0]",
        "notable",
    ),
    "step gone": ("/recipe/steps/2", ..., "step-removed", "recipe.steps[ort]", "notable"),
    "tool": ("/recipe/tools/torch", "2.14", "tool-changed", "recipe.tools.torch", "cosmetic"),
    "source": ("/source/revision", "def", "source-changed", "source.revision", "notable"),
    "license": ("/license", "MIT", "license-changed", "license", "notable"),
    "spelling of a license": ("/license", "apache-2.0", "license-changed", "license", "cosmetic"),
    "shorter": (
        "/max_sequence_length",
        128,
        "max-sequence-length-changed",
        "max_sequence_length",
        "breaking",
    ),
    "longer": ("/max_sequence_length", 1024, "max-sequence-length-changed", "max_sequence_length", "notable"),
    "task": ("/task", "text-classification", "task-changed", "task", "breaking"),
    "preprocessing": ("/segmenter/id", "pysbd", "preprocessing-changed", "segmenter.id", "degrading"),
    "pixels": ("/preprocessing/mean/0", 0.5, "preprocessing-changed", "preprocessing.mean", "breaking"),
    "no longer rebuilt": (
        "/artifacts/0/reproducible",
        False,
        "reproducible-changed",
        f"{FP32}.reproducible",
        "degrading",
    ),
    "no rule": ("/family", "deberta", "field-changed", "family", "notable"),
    "unknown field": ("/x.y", 1, "field-added", '["x.y"]', "notable"),
    "unknown empty field": ("/x", [], "field-added", "x", "cosmetic"),
    "null where nothing stood": (
        "/artifacts/0/parent",
        None,
        "artifact-parent-added",
        f"{FP32}.parent",
        "cosmetic",
    ),
}


@pytest.mark.parametrize(("pointer", "to", "kind", "path", "severity"), CASES.values(), ids=CASES.keys())
def test_a_change_of_the_evidence_has_its_severity(
    pointer: str, to: Any, kind: str, path: str, severity: str, found_after: Any
) -> None:
    assert (kind, path, severity) in [
        (found.kind, found.path, found.severity) for found in found_after(pointer, to)
    ]


@pytest.mark.parametrize("value", [0.0, 0.004, None])
def test_values_of_two_suites_are_not_compared(full: dict[str, Any], value: float | None) -> None:
    """The very bytes, measured on another suite: neither better nor worse."""
    other = copy.deepcopy(full)
    int8 = other["artifacts"][1]
    int8["checks"][0] |= {"value": value, "dataset": sha(91)}
    int8["certification"]["evidence"]["suite"] = sha(91)
    other["quant_recall_delta"] = 0.002
    found = diff(Manifest.from_json(full), Manifest.from_json(other)).changes
    values = [change for change in found if change.kind in ("check-value-changed", "recall-delta-changed")]
    assert len(values) == 2
    assert {(change.severity, change.note) for change in values} == {("notable", "measured on another suite")}


@pytest.mark.parametrize(
    ("direction", "old", "new", "severity"),
    [
        ("higher", sha(90), sha(90), "degrading"),
        ("lower", sha(90), sha(90), "notable"),
        ("higher", sha(90), sha(91), "notable"),
        ("higher", sha(90), None, "notable"),
    ],
)
def test_a_direction_says_which_values_are_worse_on_one_suite(
    direction: str, old: str, new: str | None, severity: str, full: dict[str, Any]
) -> None:
    """The name of the metric says the contrary: `error_rate` would be worse when it rises."""
    sides = []
    for value, dataset in ((0.5, old), (0.4, new)):
        check = {"name": "x/error_rate", "metric": "error_rate", "value": value, "verdict": "info"}
        side = copy.deepcopy(full)
        side["artifacts"][1]["checks"].append(
            check | {"direction": direction} | ({"dataset": dataset} if dataset else {})
        )
        sides.append(Manifest.from_json(side))
    (change,) = [found for found in diff(*sides).changes if found.kind == "check-value-changed"]
    assert (change.path, change.severity) == (f"{INT8}.checks[x/error_rate].value", severity)
    assert change.note == (None if old == new else "measured on another suite")


def test_a_loss_that_grows_on_the_same_suite_is_degrading(full: dict[str, Any]) -> None:
    other = copy.deepcopy(full) | {"quant_recall_delta": 0.002}
    (change,) = diff(Manifest.from_json(full), Manifest.from_json(other)).changes
    assert (change.kind, change.severity) == ("recall-delta-changed", "degrading")
