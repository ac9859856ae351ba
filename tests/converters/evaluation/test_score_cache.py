"""The scores of an artifact are taken from the cache only if everything that shapes them is equal."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.evaluation import subject_of

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
def judge(checkpoint: Any, candidate: Any, write_suite: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
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

    vars(run).update(cache=cache, path=path)
    assert run()
    assert not run()
    return run


def test_other_options_sources_and_bytes_are_judged_anew(judge):
    assert judge({"subject": 2})
    assert judge(metrics=[{"metric": "character_recall"}])
    assert judge(half="choose", seed=1)
    assert judge(half="choose", seed=2)
    assert not judge()
    (judge.path.parent / "genai_config.json").write_text("{}")
    assert judge()
    judge.path.write_bytes(judge.path.read_bytes() + b"\x72\x00")
    assert judge()


def with_library(library: str) -> Any:
    versions = module.package_versions
    return lambda names: {**versions(names), library: "0.0"}


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (module, "package_versions", with_library("scikit-learn")),
        (module, "package_versions", with_library("scipy")),
        (SpanF1, "packages", ("numpy",)),
        (SpanF1, "version", 2),
        (module, "SCORES_VERSION", module.SCORES_VERSION + 1),
        (module, "tools", lambda: {"onnxruntime": "0.0"}),
        (module, "instruction_set", lambda: "another"),
    ],
)
def test_other_libraries_versions_batches_tools_and_processors_are_judged_anew(
    judge, monkeypatch, owner, name, value
):
    monkeypatch.setattr(owner, name, value)
    assert judge()


TABLE = {"table": "group\n0\n", "facts": {}}


@pytest.mark.parametrize(
    "value", [None, 3, [], {"table": ""}, [TABLE, {}], [{"table": "x", "facts": {}}], [{}]], ids=str
)
def test_a_damaged_entry_is_judged_anew(judge, value):
    (key,) = judge.cache.values
    judge.cache.values[key] = value
    assert judge()
    assert not judge()
