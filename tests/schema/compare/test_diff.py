"""The document that `diff` returns: each edit with its kind, path and severity, what it says in words, and the table of docs/diff.md."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from support.schema.edits import refused, sha

from onnxreg.schema.compare.manifests import Change, diff
from onnxreg.schema.compare.severity import FIELD, RULES, Rule
from onnxreg.schema.manifest.manifest import Manifest

FP32 = "artifacts[onnx-android/float32/model.onnx]"
INT8 = "artifacts[onnx-int8/int8/model_int8.onnx]"
ORT = "artifacts[ort-android/float32/model.ort]"


PLACES = {"FP32": ("/artifacts/0", FP32), "INT8": ("/artifacts/1", INT8), "ORT": ("/artifacts/2", ORT)}
CASES = r"""
ORT/digest | "DIGEST" | artifact-bytes-changed | ORT.digest | cosmetic
ORT/semantic/weights | "DIGEST" | weights-changed | ORT.semantic.weights | notable
ORT/semantic/graph | "DIGEST" | graph-changed | ORT.semantic.graph | notable
FP32/size | 9 | artifact-size-changed | FP32.size | notable
INT8/precision | "int4" | artifact-precision-changed | artifacts[onnx-int8/model_int8.onnx].precision | breaking
FP32/path | "m.onnx" | artifact-path-changed | artifacts[onnx-android/float32].path | breaking
INT8/files/0/size | 7 | sidecar-changed | INT8.files[external-data:model_int8.onnx.data].size | notable
FP32/metadata/inputs/0/name | "ids" | input-renamed | FP32.metadata.inputs[0].name | breaking
FP32/metadata/inputs/0/dtype | "int32" | input-retyped | FP32.metadata.inputs[input_ids].dtype | breaking
FP32/metadata/inputs/0/shape/1 | {"kind": "static", "value": 4} | input-reshaped | FP32.metadata.inputs[input_ids].shape[1] | breaking
FP32/metadata/inputs/0/shape/1 | {"kind": "dynamic", "name": "n"} | input-reshaped | FP32.metadata.inputs[input_ids].shape[1] | cosmetic
FP32/metadata/outputs/0/shape/2 | {"kind": "dynamic", "name": "n"} | output-reshaped | FP32.metadata.outputs[logits].shape[2] | breaking
FP32/metadata/outputs/0/shape/0 | {"kind": "static", "value": 1} | output-reshaped | FP32.metadata.outputs[logits].shape[0] | notable
FP32/metadata/inputs/1 | removed | input-removed | FP32.metadata.inputs[attention_mask] | breaking
FP32/metadata/inputs/- | {"name": "token_type_ids", "dtype": "int64"} | input-added | FP32.metadata.inputs[token_type_ids] | breaking
FP32/metadata/outputs/- | {"name": "hidden", "dtype": "float32"} | output-added | FP32.metadata.outputs[hidden] | notable
FP32/metadata/outputs/0/shape/2/value | 5 | output-reshaped | FP32.metadata.outputs[logits].shape[2] | breaking
FP32/metadata/inputs | reversed | input-reordered | FP32.metadata.inputs | notable
ORT/operators/- | {"domain": "com.microsoft", "name": "FusedMatMul", "opset": 1} | operator-added | ORT.operators[com.microsoft:FusedMatMul:1] | breaking
FP32/operators/- | {"domain": "com.microsoft", "name": "FusedMatMul", "opset": 1} | operator-added | FP32.operators[com.microsoft:FusedMatMul:1] | notable
ORT/operators/1 | removed | operator-removed | ORT.operators[ai.onnx:Gather:13] | notable
ORT/operators/0/opset | 9 | operator-added | ORT.operators[ai.onnx:MatMul:9] | breaking
ORT/operators/0/inputs | {"0": ["float", "int8_t"]} | operator-changed | ORT.operators[ai.onnx:MatMul:13].inputs["0"] | breaking
FP32/opset_imports/ai.onnx | 21 | opset-changed | FP32.opset_imports["ai.onnx"] | breaking
FP32/opset_imports/ai.onnx | 17 | opset-changed | FP32.opset_imports["ai.onnx"] | notable
FP32/opset_imports/ai.onnx.ml | 3 | opset-added | FP32.opset_imports["ai.onnx.ml"] | breaking
FP32/contrib/- | "QMoE" | contrib-operator-added | FP32.contrib[QMoE] | breaking
FP32/ir_version | 10 | loader-changed | FP32.ir_version | breaking
ORT/ort_format | 6 | loader-changed | ORT.ort_format | breaking
/labels | ["O", "B-NAME", "B-EMAIL", "B-ID"] | label-added | labels[B-ID] | notable
/labels | ["O", "B-NAME"] | label-removed | labels[B-EMAIL] | breaking
/labels | ["O", "B-EMAIL", "B-NAME"] | label-reordered | labels | breaking
/labels | ["X", "O", "B-NAME", "B-EMAIL"] | label-reordered | labels | breaking
/files/2/digest | "DIGEST" | companion-changed | files[tokenizer:tokenizer.json].digest | degrading
/files/0/digest | "DIGEST" | companion-changed | files[config:config.json].digest | notable
/files/1 | removed | companion-removed | files[labels:id2label.json] | breaking
/files/- | {"role": "vocabulary", "path": "vocab.txt", "digest": "DIGEST", "size": 1} | companion-added | files[vocabulary:vocab.txt] | notable
INT8/quantization/requested/scheme | "static" | requested-quantization-changed | INT8.quantization.requested.scheme | notable
INT8/quantization/measured/weights_quantized | 3 | measured-quantization-changed | INT8.quantization.measured.weights_quantized | notable
INT8/checks/0/value | 0.004 | check-value-changed | INT8.checks[recall/quant_recall_delta].value | degrading
INT8/checks/0/value | 0.0001 | check-value-changed | INT8.checks[recall/quant_recall_delta].value | notable
INT8/checks/1/value | 0.9 | check-value-changed | INT8.checks[parity/argmax_agreement].value | degrading
INT8/checks/2/value | 0.0045 | check-value-changed | INT8.checks[parity/max_abs_diff].value | notable
INT8/checks/3/value | 0.81 | check-value-changed | INT8.checks[sts/spearman].value | degrading
INT8/checks/3/value | 0.85 | check-value-changed | INT8.checks[sts/spearman].value | notable
INT8/checks/4/value | 0.003 | check-value-changed | INT8.checks[sts/spearman/loss].value | degrading
INT8/checks/4/value | -0.003 | check-value-changed | INT8.checks[sts/spearman/loss].value | notable
INT8/checks/3/direction | "lower" | check-changed | INT8.checks[sts/spearman].direction | notable
INT8/checks/0/value | null | check-value-changed | INT8.checks[recall/quant_recall_delta].value | degrading
INT8/checks/0/verdict | "fail" | check-verdict-changed | INT8.checks[recall/quant_recall_delta].verdict | degrading
INT8/checks/0 | removed | check-removed | INT8.checks[recall/quant_recall_delta] | degrading
FP32/certification | {"state": "unknown"} | certification-added | FP32.certification.state | cosmetic
INT8/certification/evidence/suite | "DIGEST" | certification-basis-changed | INT8.certification.evidence.suite | notable
/recipe/profile_version | 2 | recipe-changed | recipe.profile_version | notable
/recipe/steps/1/params/op_types | ["Gemm"] | step-changed | recipe.steps[int8].params.op_types[0] | notable
/recipe/steps/2 | removed | step-removed | recipe.steps[ort] | notable
/recipe/tools/torch | "2.14" | tool-changed | recipe.tools.torch | cosmetic
/source/revision | "def" | source-changed | source.revision | notable
/license | "MIT" | license-changed | license | notable
/license | "apache-2.0" | license-changed | license | cosmetic
/max_sequence_length | 128 | max-sequence-length-changed | max_sequence_length | breaking
/max_sequence_length | 1024 | max-sequence-length-changed | max_sequence_length | notable
/task | "text-classification" | task-changed | task | breaking
/segmenter/id | "pysbd" | preprocessing-changed | segmenter.id | degrading
/preprocessing/mean/0 | 0.5 | preprocessing-changed | preprocessing.mean | breaking
/audio_preprocessing/mels | 128 | preprocessing-changed | audio_preprocessing.mels | breaking
FP32/reproducible | false | reproducible-changed | FP32.reproducible | degrading
/family | "deberta" | field-changed | family | notable
/x.y | 1 | field-added | ["x.y"] | notable
/x | [] | field-added | x | cosmetic
FP32/parent | null | artifact-parent-added | FP32.parent | cosmetic
"""
"""Pointer (`-` appends to a list), new value, and the change: its kind, path and severity."""


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_a_change_has_its_severity(case, found_after):
    pointer, text, kind, path, severity = case.split(" | ")
    for name, (at, artifact) in PLACES.items():
        pointer, path = pointer.replace(name, at), path.replace(name, artifact)
    if text == "removed":
        to: Any = ...
    elif text == "reversed":
        to = lambda old: old[::-1]
    else:
        to = json.loads(text.replace("DIGEST", sha(900)))
    found = [(each.kind, each.path, each.severity) for each in found_after(pointer, to)]
    assert (kind, path, severity) in found


def other_rank(old: dict[str, Any]) -> dict[str, Any]:
    old["artifacts"][0]["metadata"]["inputs"][0] |= {
        "shape": [{"kind": "dynamic", "name": "n"}],
        "axes": ["n"],
    }
    return old


def without_ort(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "artifacts": old["artifacts"][:2], "formats": old["formats"][:2]}


@pytest.mark.parametrize(
    ("edit", "kind", "path", "severity"),
    [
        (refused, "certification-changed", f"{INT8}.certification.state", "degrading"),
        (lambda old: refused(old, 0), "certification-added", f"{FP32}.certification.state", "degrading"),
        (other_rank, "input-reshaped", f"{FP32}.metadata.inputs[input_ids].shape", "breaking"),
        (without_ort, "artifact-removed", ORT, "breaking"),
    ],
)
def test_a_change_of_several_fields_has_its_severity(edit, kind, path, severity, found_after):
    found = [(each.kind, each.path, each.severity) for each in found_after("", edit)]
    assert (kind, path, severity) in found


def test_the_summary_of_a_change(full):
    old, app = Manifest.from_json(full), "An app that runs the old version"

    def summary() -> tuple[bool, str]:
        found = diff(old, Manifest.from_json(full))
        return found.compatible, found.summary

    assert summary() == (True, "The two versions do not differ.")
    full["recipe"]["tools"]["torch"] = "3"
    assert summary() == (True, f"{app} can run the new one unchanged. Changes: 1 cosmetic.")
    full["files"][2]["digest"] = sha(9)
    worse = "can run the new one unchanged, with worse results or weaker evidence"
    assert summary() == (True, f"{app} {worse}. Changes: 1 degrading, 1 cosmetic.")
    full["labels"] = ["O", "B-EMAIL", "B-NAME"]
    del full["artifacts"][0]["metadata"]["inputs"][0]
    full["max_sequence_length"] = 1
    full["artifacts"][0]["ir_version"] = 11
    causes = "loader changed, input removed, label reordered and 1 more"
    assert summary() == (False, f"{app} cannot run the new one unchanged: {causes}.")


def test_reordered_labels_say_which_index_moved(full):
    old = Manifest.from_json(full)
    full["labels"] = ["O", "B-EMAIL", "B-NAME"]
    (change,) = diff(old, Manifest.from_json(full)).changes
    assert change.message == (
        'label reordered: [1] "B-NAME" -> "B-EMAIL" (the same output index now means another label)'
    )
    assert (change.old, change.new) == (["O", "B-NAME", "B-EMAIL"], ["O", "B-EMAIL", "B-NAME"])


def test_a_message_is_short_and_printable(full):
    old = Manifest.from_json(full)
    full["license"] = "x" * 4000
    full["unknown"] = {"a" * 5000: ["y" * 5000]}
    full["labels"] = ["O", "\x1b[2J", "\u202e"]
    for change in diff(old, Manifest.from_json(full)).changes:
        assert len(change.message) < 400
        assert change.message.isprintable()


def test_a_list_or_an_object_that_becomes_null_counts_as_removed(full):
    old = Manifest.from_json(full)
    found = diff(old, Manifest.from_json({**full, "labels": None}))
    assert [change.kind for change in found.changes] == ["label-removed"] * 3 and not found.compatible
    back = diff(Manifest.from_json({**full, "labels": None}), old)
    assert [change.kind for change in back.changes] == ["label-added"] * 3


def test_a_name_that_looks_like_the_second_of_another(full):
    full["labels"] = ["a#2", "a", "a"]
    old = Manifest.from_json(full)
    full["labels"] = ["a#2", "a"]
    (change,) = diff(old, Manifest.from_json(full)).changes
    assert (change.kind, change.old) == ("label-removed", "a")


def test_many_artifacts_take_no_quadratic_time(full):
    one = full["artifacts"][0]
    full["artifacts"] = [
        {**one, "path": f"m{i}.onnx", "digest": sha(i + 100), "metadata": {"opset": i}} for i in range(800)
    ]
    full["formats"] = ["onnx-android"]
    full["certified"] = full["quantization"]["certified"] = False
    new = copy.deepcopy(full)
    for i, artifact in enumerate(new["artifacts"]):
        artifact["path"] = f"n{i}.onnx"
    changes = diff(Manifest.from_json(full), Manifest.from_json(new)).changes
    assert {change.kind for change in changes} == {"artifact-path-changed"}
    assert len(changes) == 800


@pytest.mark.parametrize(
    ("direction", "old", "new", "severity", "note"),
    [
        ("higher", sha(90), sha(90), "degrading", None),
        ("lower", sha(90), sha(90), "notable", None),
        ("higher", sha(90), sha(91), "notable", "measured on another suite"),
        ("higher", sha(90), None, "notable", "the new one names no suite"),
        ("higher", None, sha(90), "notable", "the old one names no suite"),
    ],
)
def test_a_direction_says_which_values_are_worse_on_one_suite(direction, old, new, severity, note, full):
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
    assert change.note == note


@pytest.mark.parametrize(
    ("name", "metric", "severity"),
    [
        ("character_recall/WEIGHT_LOSS", "character_recall", "degrading"),
        ("character_recall/NAME", "character_recall", "degrading"),
        ("parity of loss", "argmax_agreement", "degrading"),
        ("parity of f1", "max_abs_diff", "notable"),
    ],
)
def test_the_name_of_a_label_or_output_says_nothing_about_what_is_better(full, name, metric, severity):
    sides = [copy.deepcopy(full), copy.deepcopy(full)]
    for side, value in zip(sides, (0.95, 0.4), strict=True):
        check = {"name": name, "metric": metric, "value": value, "verdict": "info"}
        side["artifacts"][1]["checks"].append(check)
    (change,) = [
        one for one in diff(*map(Manifest.from_json, sides)).changes if one.kind == "check-value-changed"
    ]
    assert change.severity == severity


def bytes_changed(full: dict[str, Any], **semantic: str) -> Change:
    """The change of an artifact's digest, beside these changes of its semantic digest."""
    new = copy.deepcopy(full)
    new["artifacts"][2]["digest"] = sha(500)
    new["artifacts"][2]["semantic"] |= semantic
    changes = diff(Manifest.from_json(full), Manifest.from_json(new)).changes
    (found,) = [change for change in changes if change.kind == "artifact-bytes-changed"]
    halves = {change.kind for change in changes} - {"artifact-bytes-changed"}
    assert halves == {f"{half}-changed" for half in semantic}
    return found


@pytest.mark.parametrize(
    ("changed", "severity", "words"),
    [
        ((), "cosmetic", "another producer"),
        (("graph",), "notable", "another graph"),
        (("weights",), "notable", "new weights"),
        (("graph", "weights"), "notable", "another graph and new weights"),
    ],
    ids=str,
)
def test_other_bytes(changed, severity, words, full):
    found = bytes_changed(full, **dict.fromkeys(changed, sha(501)))
    assert (found.severity, found.message.endswith(f" ({words})")) == (severity, True)


@pytest.mark.parametrize("without", ["old", "new", "both"])
def test_without_a_semantic_digest_no_change_is_claimed(without, full):
    new = copy.deepcopy(full)
    new["artifacts"][2]["digest"] = sha(500)
    for side, value in (("old", full), ("new", new)):
        if without in (side, "both"):
            del value["artifacts"][2]["semantic"]
    changes = diff(Manifest.from_json(full), Manifest.from_json(new)).changes
    assert [change.severity for change in changes if change.kind == "artifact-bytes-changed"] == ["notable"]
    assert all("(" not in change.message for change in changes)
    severities = {change.severity for change in changes if "semantic" in change.path}
    assert severities == (set() if without == "both" else {"cosmetic"})


PAGE = Path(__file__).parents[3] / "docs" / "diff.md"
USUAL = Rule("usual")


def row(pattern: str, rule: Rule) -> str:
    severities: dict[str, list[str]] = {}
    for operation in ("added", "removed", "changed", "reordered"):
        cell = getattr(rule, operation)
        if cell != getattr(USUAL, operation):
            severities.setdefault(cell if isinstance(cell, str) else "by case", []).append(operation)
    cells = "; ".join(f"{severity}: {', '.join(which)}" for severity, which in severities.items())
    return f"| `{pattern}` | {rule.noun} | {cells} |"


def test_the_table_is_the_one_of_the_code():
    expected = [*(row(pattern, rule) for pattern, rule in RULES.items()), row("*", FIELD)]
    found = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert found == expected, "\n".join(expected)
