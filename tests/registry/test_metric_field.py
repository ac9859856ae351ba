"""Metrics as a field of questions: in the state line, and for index files of older builds in the manifest."""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.registries import owner
from support.trust.tamper import Tree

from onnxreg.registry import Registry
from onnxreg.registry.deliver import resolution
from onnxreg.registry.log import lookup
from onnxreg.registry.search.catalog import Catalog
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.schema.core.bounds import MAX_METRICS
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.manifest.draft import Draft, Verdict
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.requirements import Query

MakeDraft = Callable[..., Draft]
NAME = "acme/pii"
SUITE, OTHER = str(Digest.of(b"suite")), str(Digest.of(b"other"))
BASE = str(Digest.of(b"base"))


def check(name: str, value: float | None, dataset: str | None = SUITE, **more: Any) -> dict[str, Any]:
    direction = {} if name.startswith(("character_recall", "quant_recall_delta")) else {"direction": "higher"}
    metric = name.partition("/")[0]
    value_keys = {"name": name, "metric": metric, "value": value, "verdict": "info"}
    return value_keys | direction | ({"dataset": dataset} if dataset else {}) | more


MEASURED = (
    check("sts/spearman", 0.83),
    check("sts/spearman/loss", -0.002, direction="lower"),
    check("sts/pearson", None),
    check("sts/kendall", 0.7, OTHER),
    check("size", 400, None),
    check("quant_recall_delta", 0.001),
    check("character_recall/DATE", 0.9),
)


def evaluated(draft: Draft, checks: Sequence[dict[str, Any]] = MEASURED, suite: str | None = SUITE) -> Draft:
    """With these checks of the int8 artifact, judged on the suite."""
    first, int8 = draft.artifacts
    verdict = Verdict("certified", "rule", suite=Digest.parse(suite)) if suite else int8.verdict
    judged = replace(int8, verdict=verdict, fields={**int8.fields, "checks": list(checks)})
    fields = {**draft.fields, "source": {"id": "acme/base", "digest": BASE}}
    return replace(draft, artifacts=(first, judged), fields=fields)


@pytest.fixture
def measured(registry: Registry, make_draft: MakeDraft) -> Registry:
    registry.add(evaluated(make_draft()), "1.0.0")
    return registry


def metrics(registry: Registry, version: str = "1.0.0") -> Any:
    artifacts = Tree(registry.store.root).state(NAME)["summaries"][version]["artifacts"]
    return [artifact.get("metrics") for artifact in artifacts]


def test_the_state_line_has_what_was_measured_on_the_suite_of_the_verdict(measured: Registry) -> None:
    expected = {"sts/spearman": 0.83, "sts/spearman/loss": -0.002, "quant_recall_delta": 0.001}
    assert metrics(measured) == [None, expected]
    assert not owner.verify(measured).damages


def test_without_a_suite_there_are_no_metrics(registry: Registry, make_draft: MakeDraft) -> None:
    registry.add(evaluated(make_draft(), suite=None), "1.0.0")
    assert metrics(registry) == [None, None]


def test_the_state_line_has_the_first_metrics_only(registry: Registry, make_draft: MakeDraft) -> None:
    checks = [check(f"m{number}", number) for number in range(MAX_METRICS + 1)]
    registry.add(evaluated(make_draft(), checks), "1.0.0")
    assert metrics(registry) == [None, {f"m{number}": number for number in range(MAX_METRICS)}]
    assert not owner.verify(registry).damages
    assert asked(registry, f"metric.m{MAX_METRICS - 1} > 0") and not asked(
        registry, f"metric.m{MAX_METRICS} > 0"
    )


TRUE = (
    "metric['sts/spearman'] >= 0.82 and metric['sts/spearman/loss'] < 0.01",
    "metric['quant_recall_delta'] <= 0.005",
    "metric['character_recall/DATE'] >= 0.9 and recall.DATE >= 0.9",
)
FALSE = (
    "metric['sts/spearman'] > 0.83",
    "metric['sts/pearson'] >= 0",
    "metric['sts/kendall'] >= 0",
    "metric.size >= 0",
    "metric['character_recall/NAME'] >= 0",
)


def asked(registry: Registry, text: str) -> bool:
    """The same answer of the search index, of a reading elsewhere, and of resolve: true of the int8 artifact."""
    expression = parse(text)
    here, there = LocalCatalog(registry.store).refresh(artifacts=True), Catalog(registry.id)
    there.update(registry.store, artifacts=True)
    paths = [row.path for row in here.query(expression)]
    assert [row.path for row in there.query(expression)] == paths
    assert here.damages(artifacts=True) == there.damages(artifacts=True)
    assert paths in ([], ["model_int8.onnx"])
    try:
        assert registry.resolve(NAME, Query(where=expression)).artifact.path == "model_int8.onnx"
    except NotFoundError:
        assert not paths
    return bool(paths)


def test_questions_have_the_same_answers_everywhere(measured: Registry) -> None:
    assert [text for text in (*TRUE, *FALSE) if asked(measured, text)] == [*TRUE]


def test_one_request_answers(measured: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "read_blob", None)
    assert str(measured.resolve(NAME, Query(where=parse(TRUE[0]))).located.version) == "1.0.0"


def test_wrong_metrics_in_an_index_file_are_damage(measured: Registry) -> None:
    def change(state: Any) -> None:
        state["summaries"]["1.0.0"]["artifacts"][1]["metrics"]["sts/spearman"] = 0.99

    Tree(measured.store.root).edit_state(NAME, change)
    assert owner.verify(measured).damages
    with pytest.raises(IntegrityError, match="says other things of manifest"):
        resolution.resolve(measured.store, Ref.parse(NAME), Query(), verify=True)


@pytest.mark.parametrize("value", [[], "0.9", {"f1": "0.9"}, {"f1": None}, {"f1": True}])
def test_malformed_metrics_in_an_index_file_are_an_error(measured: Registry, value: Any) -> None:
    def change(state: Any) -> None:
        state["summaries"]["1.0.0"]["artifacts"][1]["metrics"] = value

    Tree(measured.store.root).edit_state(NAME, change)
    with pytest.raises(IntegrityError, match="cannot be read"):
        measured.resolve(NAME, Query(where=parse("metric.f1 > 0")))


def test_the_command_line(measured: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    from onnxreg.cli.main import main

    home = ["--registry", str(measured.store.root)]
    assert main([*home, "query", TRUE[0], "--json"]) == 0
    (match,) = json.loads(capsys.readouterr().out)["matches"]
    assert match["artifact"]["metric"]["sts/spearman"] == 0.83
    assert main([*home, "resolve", NAME, "--where", TRUE[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["artifact"]["path"] == "model_int8.onnx"
    assert main([*home, "resolve", NAME, "--where", FALSE[0]]) == 3
    assert "does not meet metric['sts/spearman'] > 0.83" in capsys.readouterr().err
    target = measured.store.root.parent / "all.csv"
    assert main([*home, "query", "--export", str(target)]) == 0
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [json.loads(row["metric"]).get("quant_recall_delta") for row in rows] == [None, 0.001]
