"""The scores of an artifact are taken from the cache only if everything that shapes them is equal."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.evaluation import subject_of

from onnxreg.converters.evaluation import evaluate
from onnxreg.converters.evaluation import evaluate as module
from onnxreg.converters.evaluation.evaluate import SourceEvaluation, plan_evaluation
from onnxreg.converters.evaluation.metrics import SpanF1
from onnxreg.schema.core import canonical
from onnxreg.schema.inputs.recipe_file import EvaluationRequest
from onnxreg.schema.manifest.draft import DraftArtifact

TEXTS = ["<NAME:Ada> meets <NAME:Bo> in <CITY:New York>", "<NAME:Cy> and <NAME:Ada> in <CITY:Oslo>"]


class Memory:
    """A cache in memory; `values` are by the canonical key."""

    def __init__(self) -> None:
        self.values: dict[bytes, Any] = {}

    def find_value(self, kind: str, key: Mapping[str, Any]) -> Any:
        return self.values.get(canonical.encode({"kind": kind, **key}))

    def remember(self, kind: str, key: Mapping[str, Any], value: Any) -> None:
        self.values[canonical.encode({"kind": kind, **key})] = json.loads(json.dumps(value))


@pytest.fixture
def judge(
    checkpoint: Callable[..., SimpleNamespace],
    candidate: Callable[..., Path],
    write_suite: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., bool]:
    """Judge by a cache; returns True if the artifact was run."""
    cache, runs = Memory(), []
    subject, path = subject_of(checkpoint()), candidate()
    artifact = DraftArtifact("onnx-int8", "int8", path.name)
    predict = module.predict
    monkeypatch.setattr(module, "predict", lambda *words: runs.append(1) or predict(*words))

    def run(key: Mapping[str, Any] | None = None, **request: Any) -> bool:
        value = {"suite": str(write_suite(TEXTS)), "metrics": [{"metric": "span_f1"}], **request}
        plan = plan_evaluation(EvaluationRequest.from_json(value), "token-classification", Path(), ())
        runs.clear()
        SourceEvaluation(plan, lambda: subject, False, cache, key or {"subject": 1}).judge(artifact, path)
        return bool(runs)

    run.cache, run.path = cache, path  # type: ignore[attr-defined]
    assert run()
    assert not run()
    return run


def test_other_options_and_sources_are_judged_anew(judge: Callable[..., bool]) -> None:
    assert judge({"subject": 2})
    assert judge(metrics=[{"metric": "character_recall"}])
    assert judge(half="choose", seed=1)
    assert judge(half="choose", seed=2)
    assert not judge()


@pytest.mark.parametrize("library", ["scikit-learn", "scipy"])
def test_another_library_is_judged_anew(
    judge: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    versions = evaluate.package_versions
    monkeypatch.setattr(evaluate, "package_versions", lambda names: {**versions(names), library: "0.0"})
    assert judge()


def test_another_version_of_a_metric_or_of_its_package_is_judged_anew(
    judge: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpanF1, "packages", ("numpy",))
    assert judge()
    monkeypatch.setattr(SpanF1, "version", 2)
    assert judge()


def test_other_batches_tools_and_processors_are_judged_anew(
    judge: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SCORES_VERSION", module.SCORES_VERSION + 1)
    assert judge()
    monkeypatch.setattr(module, "tools", lambda: {"onnxruntime": "0.0"})
    assert judge()
    monkeypatch.setattr(module, "instruction_set", lambda: "another")
    assert judge()


def test_other_bytes_of_the_file_and_beside_it_are_judged_anew(judge: Any) -> None:
    (judge.path.parent / "genai_config.json").write_text("{}")
    assert judge()
    judge.path.write_bytes(judge.path.read_bytes() + b"\x72\x00")
    assert judge()


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        [],
        {"table": ""},
        [{"table": "group\n0\n", "facts": {}}, {}],
        [{"table": "x", "facts": {}}],
        [{}],
    ],
    ids=str,
)
def test_a_damaged_entry_is_judged_anew(judge: Any, value: Any) -> None:
    (key,) = judge.cache.values
    judge.cache.values[key] = value
    assert judge()
    assert not judge()
