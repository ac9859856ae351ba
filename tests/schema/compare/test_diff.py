"""The document that `diff` returns."""

import copy
from typing import Any

from onnxreg.schema.compare.manifests import diff
from onnxreg.schema.manifest.manifest import Manifest

FP32 = "artifacts[onnx-android/float32/model.onnx]"


def sha(number: int) -> str:
    return f"sha256:{number:064x}"


def test_one_change_says_all(full: dict[str, Any]) -> None:
    old = Manifest.from_json(full)
    full["artifacts"][0]["metadata"]["inputs"][0]["dtype"] = "int32"
    found = diff(old, Manifest.from_json(full)).to_json()
    assert found == {
        "format": "onnxreg-diff",
        "format_version": 1,
        "compatible": False,
        "summary": "An app that runs the old version cannot run the new one unchanged: input retyped.",
        "counts": {"breaking": 1, "degrading": 0, "notable": 0, "cosmetic": 0},
        "changes": [
            {
                "kind": "input-retyped",
                "path": f"{FP32}.metadata.inputs[input_ids].dtype",
                "severity": "breaking",
                "artifact": "onnx-android/float32/model.onnx",
                "old": "int64",
                "new": "int32",
                "message": "input retyped in onnx-android/float32/model.onnx: "
                'metadata.inputs[input_ids].dtype "int64" -> "int32"',
            }
        ],
    }


def test_the_summary_of_a_change(full: dict[str, Any]) -> None:
    old = Manifest.from_json(full)
    assert diff(old, old).summary == "The two versions do not differ."
    full["recipe"]["tools"]["torch"] = "3"
    app = "An app that runs the old version"
    assert (
        diff(old, Manifest.from_json(full)).summary
        == f"{app} can run the new one unchanged. Changes: 1 cosmetic."
    )
    full["files"][2]["digest"] = sha(9)
    found = diff(old, Manifest.from_json(full))
    assert found.compatible
    assert found.summary == (
        f"{app} can run the new one unchanged, with worse results or weaker evidence. Changes: 1 degrading, 1 cosmetic."
    )
    full["labels"] = ["O", "B-EMAIL", "B-NAME"]
    del full["artifacts"][0]["metadata"]["inputs"][0]
    full["max_sequence_length"] = 1
    full["artifacts"][0]["ir_version"] = 11
    found = diff(old, Manifest.from_json(full))
    assert not found.compatible
    assert found.summary == (
        f"{app} cannot run the new one unchanged: loader changed, input removed, label reordered and 1 more."
    )
    assert found.changes[-1].severity == "cosmetic"


def test_reordered_labels_say_which_index_moved(full: dict[str, Any]) -> None:
    old = Manifest.from_json(full)
    full["labels"] = ["O", "B-EMAIL", "B-NAME"]
    (change,) = diff(old, Manifest.from_json(full)).changes
    assert change.message == (
        'label reordered: [1] "B-NAME" -> "B-EMAIL" (the same output index now means another label)'
    )
    assert (change.old, change.new) == (["O", "B-NAME", "B-EMAIL"], ["O", "B-EMAIL", "B-NAME"])


def test_a_message_is_short_and_printable(full: dict[str, Any]) -> None:
    old = Manifest.from_json(full)
    full["license"] = "x" * 4000
    full["unknown"] = {"a" * 5000: ["y" * 5000]}
    full["labels"] = ["O", "\x1b[2J", "\u202e"]
    for change in diff(old, Manifest.from_json(full)).changes:
        assert len(change.message) < 400
        assert change.message.isprintable()


def test_a_list_or_an_object_that_becomes_null_counts_as_removed(full: dict[str, Any]) -> None:
    old = Manifest.from_json(full)
    found = diff(old, Manifest.from_json({**full, "labels": None}))
    assert [change.kind for change in found.changes] == ["label-removed"] * 3 and not found.compatible
    back = diff(Manifest.from_json({**full, "labels": None}), old)
    assert [change.kind for change in back.changes] == ["label-added"] * 3


def test_a_contrib_operator_more_is_breaking(full: dict[str, Any]) -> None:
    full["artifacts"][1]["contrib"] = ["Gelu"]
    old = Manifest.from_json(full)
    full["artifacts"][1]["contrib"] = ["Gelu", "QMoE"]
    (change,) = diff(old, Manifest.from_json(full)).changes
    assert (change.kind, change.severity, change.new) == ("contrib-added", "breaking", "QMoE")


def test_a_name_that_looks_like_the_second_of_another(full: dict[str, Any]) -> None:
    full["labels"] = ["a#2", "a", "a"]
    old = Manifest.from_json(full)
    full["labels"] = ["a#2", "a"]
    (change,) = diff(old, Manifest.from_json(full)).changes
    assert (change.kind, change.old) == ("label-removed", "a")


def test_many_artifacts_take_no_quadratic_time(full: dict[str, Any]) -> None:
    one = full["artifacts"][0]
    full["artifacts"] = [
        {**one, "path": f"m{i}.onnx", "digest": sha(i + 100), "metadata": {"opset": i}} for i in range(2000)
    ]
    full["formats"] = ["onnx-android"]
    full["certified"] = full["quantization"]["certified"] = False
    new = copy.deepcopy(full)
    for i, artifact in enumerate(new["artifacts"]):
        artifact["path"] = f"n{i}.onnx"
    changes = diff(Manifest.from_json(full), Manifest.from_json(new)).changes
    assert {change.kind for change in changes} == {"artifact-path-changed"}
    assert len(changes) == 2000
