"""The overview of changes: table, fact or cause of each, the sentences of the verdict, the interval of a figure."""

from typing import Any

import numpy as np
import pytest
from support.schema.edits import copied, refused, sha

from onnxreg.schema.compare.figures import difference, own_interval, wilson
from onnxreg.schema.compare.manifests import diff
from onnxreg.schema.compare.overview import DiffOverview, overview
from onnxreg.schema.log.state import ArtifactState
from onnxreg.schema.manifest.manifest import Check, Manifest

INT8 = "onnx-int8/int8/model_int8.onnx"


def compared(old: dict[str, Any], new: dict[str, Any], *states: ArtifactState) -> DiffOverview:
    one, other = Manifest.from_json(old), Manifest.from_json(new)
    return overview(one, other, ({}, {state.path: state for state in states}))[1]


def test_equal_versions_have_one_sentence(full):
    found = compared(full, full)
    assert found.verdict == ("The two versions do not differ.",)
    assert found.is_empty and not found.facts and not found.folded
    assert {(row.graph, row.weights) for row in found.artifacts} == {("same", "same")}


@pytest.mark.parametrize(
    ("pointer", "value", "section"),
    [
        ("/license", "MIT", "licence"),
        ("/labels", ["O", "B-EMAIL", "B-NAME"], "labels"),
        ("/recipe/tools/onnx", "1.24.0", "tools"),
        ("/source/revision", "def", "source"),
        ("/artifacts/0/metadata/inputs/0/dtype", "int32", "contract"),
        ("/artifacts/0/opset_imports/ai.onnx", 19, "operators"),
        ("/artifacts/0/operators", [], "operators"),
        ("/artifacts/1/checks/0/limit", 0.01, "limits"),
        ("/files/0/digest", sha(999), "files"),
        ("/files/0/role", "other", "files"),
        ("/validation", {"passed": False}, "other"),
    ],
)
def test_a_fact_has_its_section(pointer, value, section, full, replaced):
    found = compared(full, replaced(pointer, value))
    assert {row.section for row in found.facts} == {section}
    assert not found.folded


def test_changes_that_follow_from_new_weights_are_folded(full, replaced):
    """Digest, semantic digest, sidecars, a parity figure and a report are counted, under the row that shows the cause."""
    new = replaced("/artifacts/1/digest", sha(500))
    int8 = new["artifacts"][1]
    int8["semantic"]["weights"] = int8["files"][1]["digest"] = sha(501)
    int8["certification"]["evidence"]["artifact"] = sha(500)
    int8["checks"][2]["value"] = 0.0041
    new["files"][3]["digest"] = sha(502)
    found = compared(full, new)
    (row,) = [row for row in found.artifacts if row.name == INT8]
    assert (row.graph, row.weights) == ("same", "new")
    assert {group.cause: group.kinds for group in found.folded} == {
        "new weights": {
            "artifact-bytes-changed": 1,
            "check-value-changed": 1,
            "sidecar-changed": 1,
            "weights-changed": 1,
        },
        "the evaluation": {"certification-basis-changed": 1, "companion-changed": 1},
    }
    assert not found.facts


def test_a_breaking_change_is_not_folded_under_its_cause(full, replaced):
    new = replaced("/artifacts/2/digest", sha(500))
    new["artifacts"][2]["operators"][0]["inputs"] = {"0": ["float", "int8_t"]}
    assert ("breaking", "operator-changed") in [(row.severity, row.kind) for row in compared(full, new).facts]


def test_a_sidecar_without_new_bytes_is_a_fact(full, replaced):
    found = compared(full, replaced("/artifacts/1/files/1/digest", sha(501)))
    assert [row.kind for row in found.facts] == ["sidecar-changed"]


def test_a_figure_is_judged_by_its_direction_and_interval(full, replaced):
    """`sts/spearman` has the interval ± 0.001: a change of 0.01 is clear, of 0.0005 it is not."""
    for value, verdict in ((0.84, "better"), (0.82, "worse"), (0.8305, "unclear"), (0.8295, "unclear")):
        new = replaced("/artifacts/1/checks/3/value", value)
        new["artifacts"][1]["checks"][3]["interval"] = [value - 0.001, value + 0.001]
        (row,) = [row for row in compared(full, new).figures if row.changes]
        assert (row.name, row.verdict, row.basis) == ("sts/spearman", verdict, "published")
        assert row.change == pytest.approx(value - 0.83)
        assert row.interval == pytest.approx((value - 0.83 - 0.00141421, value - 0.83 + 0.00141421), abs=1e-6)


def test_the_verdict_names_what_got_worse_and_by_how_much(full, replaced):
    new = replaced("/artifacts/1/checks/3/value", 0.8)
    new["artifacts"][1]["checks"][3]["interval"] = [0.799, 0.801]
    found = compared(full, new)
    assert found.verdict[2] == (
        "1 of 4 comparable figures got worse: sts/spearman in model_int8.onnx by 0.03 (95 %: 0.0286 to 0.0314)."
    )
    new = replaced("/artifacts/1/checks/3", full["artifacts"][1]["checks"][3] | {"value": 0.9, "limit": 0.95})
    new["artifacts"][1]["checks"][3]["verdict"] = "fail"
    assert "sts/spearman in model_int8.onnx (0.95)" in compared(full, new).verdict[0]
    found = compared(full, replaced("/license", "MIT"))
    assert found.verdict[2:] == ("Of 4 comparable figures none is clearly worse.",)


def test_figures_of_two_suites_are_not_compared(full, replaced):
    new = replaced("/artifacts/1/certification/evidence/suite", sha(91))
    for check in new["artifacts"][1]["checks"]:
        check |= {"dataset": sha(91), "value": check["value"] / 2, "interval": [0, 1]}
    found = compared(full, new)
    assert not found.figures
    assert "No figure is compared: the versions have no suite in common." in found.verdict
    assert [row.section for row in found.facts] == ["suite", "other"]
    assert [group.cause for group in found.folded] == ["the evaluation"]


def test_a_check_that_fails_on_another_suite_is_shown(full, replaced):
    new = replaced("/artifacts/1/checks/4/dataset", sha(91))
    new["artifacts"][1]["checks"][4]["verdict"] = "fail"
    (row,) = [row for row in compared(full, new).figures if row.changes]
    assert (row.verdict, row.change, row.old_check, row.new_check) == ("uncompared", None, "pass", "fail")
    assert row.is_new_failure


def test_sizes_and_figures_beyond_all_measure(full):
    artifact, most = full["artifacts"][0], 2**53 - 1
    artifact["size"] = most
    artifact["files"] = [{"role": "external-data", "path": "w", "digest": sha(5), "size": most}]
    suite = {"dataset": sha(6), "direction": "higher", "verdict": "info"}
    artifact["checks"] = [{"name": "sts/spearman", "metric": "spearman", "value": 1.7e308, **suite}]
    new = copied(full)
    new["artifacts"][0]["checks"][0]["value"] = -1.7e308
    found = compared(full, new)
    assert "1 not compared" in found.verdict[2]
    assert most in {row.new.size for row in found.artifacts if row.new}


def test_contrib_operators_are_named_as_such(full, replaced):
    old = replaced("/artifacts/1/contrib", ["MatMulNBits", "MatMulNBits bits=8"])
    new = copied(old)
    del new["artifacts"][1]["contrib"]
    (row,) = compared(old, new).facts
    assert row.text == "contrib operator removed in model_int8.onnx: MatMulNBits bits=8, MatMulNBits"


def test_long_values_leave_the_names_of_fields(full, replaced):
    """No value is cut: if one is long, the fields alone are named."""
    values = {"first": "a value that has more than forty letters", "second": 2}
    (row,) = compared(full, full | {"validation": full.get("validation", {}) | values}).facts
    assert row.text == "field added: validation.first, validation.second"


def test_a_lost_certificate_is_in_the_verdict(full, replaced):
    """By the manifest, and by a refusal that came later."""
    new = refused(full)
    assert "No longer certified: model_int8.onnx." in compared(full, new).verdict
    later = ArtifactState("model_int8.onnx", "certified", "refused")
    found = compared(full, replaced("/license", "MIT"), later)
    assert "No longer certified: model_int8.onnx." in found.verdict
    assert [row.new.state for row in found.artifacts if row.new] == ["unknown", "refused", "unknown"]


@pytest.mark.parametrize("side", [0, 1])
def test_figures_of_one_side_are_said_to_be_so(side, full):
    sides = [copied(full) for _ in range(2)]
    for artifact in sides[side]["artifacts"]:
        artifact.pop("checks", None)
    found = compared(*sides)
    assert "No figure was measured in both versions." in found.verdict
    assert {row.verdict for row in found.figures} == {("added", "removed")[side]}


def test_two_figures_of_one_name_have_their_metrics(full):
    sides = [copied(full) for _ in range(2)]
    for checks in (side["artifacts"][1]["checks"] for side in sides):
        checks += [
            {"name": "parity float32", "metric": metric, "value": 0.5, "verdict": verdict}
            for metric in ("max_abs_diff", "accuracy")
            for verdict in ("pass" if checks is sides[0]["artifacts"][1]["checks"] else "fail",)
        ]
    names = [row.name for row in compared(*sides).figures if row.changes]
    assert sorted(names) == ["parity float32/accuracy", "parity float32/max_abs_diff"]


def test_versions_of_two_models_say_so(full, replaced):
    found = compared(full, replaced("/name", "acme/other"))
    assert "They are versions of two models: acme/pii-small and acme/other." in found.verdict


def test_many_changes_of_a_kind_are_one_fact(full, replaced):
    labels = [f"B-{number}" for number in (0, *range(100, 399))]
    found = compared(replaced("/labels", ["O", *labels]), replaced("/labels", ["O"]))
    (row,) = found.facts
    assert row.text == "label removed: B-0, B-100, B-101 and 297 more"
    assert (row.severity, len(row.changes)) == ("breaking", 300)


def test_an_added_and_a_removed_artifact_are_rows(full, replaced):
    less = replaced("/artifacts", lambda artifacts: artifacts[:2])
    less["formats"] = ["onnx-android", "onnx-int8"]
    (row,) = [row for row in compared(full, less).artifacts if row.new is None]
    assert row.old is not None and (row.old.path, row.graph) == ("model.ort", None)
    (row,) = [row for row in compared(less, full).artifacts if row.old is None]
    assert row.new is not None and (row.new.path, len(row.changes)) == ("model.ort", 1)


def test_a_refused_artifact_that_is_gone_breaks_no_app(full):
    old = refused(full)
    new = {**old, "artifacts": [old["artifacts"][0], *old["artifacts"][2:]]}
    new["formats"] = [artifact["format"] for artifact in new["artifacts"]]
    kinds = {
        change.kind: change.severity
        for change in diff(Manifest.from_json(old), Manifest.from_json(new)).changes
    }
    assert kinds["artifact-removed"] == "notable" and "breaking" not in kinds.values()


@pytest.mark.parametrize(("samples", "is_worse"), [(None, True), (100, False), (100_000, True)])
def test_a_figure_within_its_interval_makes_the_verdict_no_worse(full, samples, is_worse):
    about = {"name": "accuracy", "metric": "accuracy", "verdict": "info", "dataset": sha(1)}
    about |= {"direction": "higher"} | ({} if samples is None else {"samples": samples})
    old, new = (copied(full) for _ in range(2))
    old["artifacts"][1]["checks"].append({**about, "value": 0.9689})
    new["artifacts"][1]["checks"].append({**about, "value": 0.9607})
    assert ("worse results" in compared(old, new).verdict[0]) is is_worse


def test_a_figure_that_is_gone_makes_the_verdict_worse(full, replaced):
    checks = full["artifacts"][1]["checks"]
    found = compared(full, replaced("/artifacts/1/checks", [*checks[:3], *checks[4:]]))
    assert [row.verdict for row in found.figures if row.changes] == ["removed"]
    assert "worse results" in found.verdict[0]


def test_wilson_is_that_of_newcombes_first_example():
    """Newcombe, Statistics in Medicine 17, 1998, p. 857: 81 of 263 gives 0.2553 to 0.3662."""
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(5 / 50, 50) == pytest.approx((0.04347, 0.21361), abs=1e-5)  # as statsmodels says
    assert wilson(0, 9)[0] == 0 and wilson(1, 9)[1] == 1


def test_the_difference_is_that_of_newcombes_example():
    """The same volume, p. 873, method 10: 56/70 - 48/80 gives 0.0524 to 0.3339."""
    old, new = 48 / 80, 56 / 70
    found = difference(old, wilson(old, 80), new, wilson(new, 70))
    assert found == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_the_reverse_mirrors():
    one, other = (0.9, (0.85, 0.93)), (0.97, (0.92, 0.99))
    low, high = difference(*one, *other)
    assert difference(*other, *one) == pytest.approx((-high, -low))


def test_the_interval_holds_as_often_as_it_says():
    """Of 2,000 pairs of independent suites about 95 % have the true difference in their interval."""
    draws = np.random.default_rng(5)
    old, new, spans = 0.95, 0.92, 150
    covered = 0
    for before, after in draws.binomial(spans, [old, new], (2000, 2)) / spans:
        low, high = difference(before, wilson(before, spans), after, wilson(after, spans))
        covered += low <= new - old <= high
    assert 0.93 <= covered / 2000 <= 0.98


def check(metric: str, value: float | None, **fields: object) -> Check:
    return Check.from_json({"name": metric, "metric": metric, "value": value, "verdict": "info", **fields})


def test_only_a_share_has_an_interval_of_its_samples():
    assert own_interval(check("accuracy", 0.9, samples=100)) == wilson(0.9, 100)
    assert own_interval(check("spearman", 0.9, samples=100)) is None
    assert own_interval(check("accuracy", None, samples=100)) is None
    assert own_interval(check("accuracy", 0.9)) is None
    assert own_interval(check("spearman", 0.9, interval=[0.8, 0.95])) == (0.8, 0.95)
