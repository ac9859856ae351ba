import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.evaluation import subject_of
from support.sampling import sampled

from onnxreg.converters.evaluation import evaluate as module
from onnxreg.converters.evaluation.evaluate import SourceEvaluation, evaluate, plan_evaluation
from onnxreg.converters.evaluation.metrics import METRICS, SpanF1
from onnxreg.converters.source.toolchain import distributions, tools
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import EvaluationRequest
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, Verdict
from onnxreg.schema.manifest.manifest import Check

CERTIFICATE = "certificates/model_int8.onnx.json"
TRUTH = {"Ada": "B-NAME", "Bo": "B-NAME", "Cy": "I-NAME", "Oslo": "B-CITY", "New": "B-CITY", "York": "I-CITY"}
SENTENCES = ["<NAME:Ada> meets <NAME:Bo> in <CITY:New York>", "<NAME:Cy> and <NAME:Ada> in <CITY:Oslo>"]
GOOD = [SENTENCES[number % 2] for number in range(100)]
"""NAME: 50 x (3 + 2 + 2 + 3) = 500 characters, CITY: 50 x (8 + 4) = 600."""


@dataclass(frozen=True)
class RecallEvaluation:
    """All that an evaluation of an INT8 file puts on record."""

    verdict: Verdict
    checks: list[dict[str, Any]]
    certificate: dict[str, Any]

    @property
    def metric(self) -> dict[str, Any]:
        (record,) = self.certificate["metrics"]
        return dict(record)


Certify = Callable[..., RecallEvaluation]


@pytest.fixture
def certify(checkpoint: Any, candidate: Any, write_suite: Any, workspace: Path) -> Certify:
    """Judge a file as the android profile does."""

    def run(texts: list[str], parent: Any = TRUTH, child: Any = TRUTH, **floors: Any) -> RecallEvaluation:
        shutil.copy(candidate(child), workspace / "model_int8.onnx")
        metrics = [{"metric": "character_recall", "settings": floors}]
        value = {"suite": str(write_suite(texts)), "metrics": metrics, "label_names": "openmed"}
        request = EvaluationRequest.from_json(value)
        plan = plan_evaluation(request, "token-classification", Path(), ["model_int8.onnx"])
        draft = Draft("acme/names", workspace, (DraftArtifact("onnx-int8", "int8", "model_int8.onnx"),))
        judged = evaluate(SourceEvaluation(plan, subject_of(checkpoint(parent))), draft)
        (artifact,) = judged.artifacts
        certificate = json.loads((workspace / CERTIFICATE).read_bytes())
        return RecallEvaluation(artifact.verdict, artifact.fields["checks"], certificate)

    return run


def test_equal_models_are_certified(certify, workspace):
    done = certify(GOOD)
    verdict = done.verdict
    assert (verdict.state, verdict.rule, verdict.report) == ("certified", "G4/interval", CERTIFICATE)
    assert verdict.suite == Digest.of((workspace.parent / "suite.jsonl").read_bytes())
    written = {path.relative_to(workspace).as_posix() for path in workspace.rglob("*") if path.is_file()}
    assert written == {"model_int8.onnx", CERTIFICATE}
    assert (done.metric["loss"], done.metric["limit"], done.certificate["state"]) == (0.0, 0.005, "certified")


def test_a_loss_is_refused_and_still_written_as_the_same_bytes(certify, workspace):
    written = set()
    for _ in range(2):
        done = certify(GOOD, child=TRUTH | {"Bo": "O", "Cy": "B-CITY"})
        written.add((workspace / CERTIFICATE).read_bytes())
    assert len(written) == 1 and written.pop().endswith(b"}\n")
    assert done.verdict.state == done.certificate["state"] == "refused"
    assert done.verdict.reasons[0].startswith("NAME loses 0.4 of its recall")
    assert done.metric["loss"] == 0.4
    figures = {check["name"]: (check["value"], check["samples"]) for check in done.checks}
    assert (figures["character_recall/NAME"], figures["character_recall/CITY"][1]) == ((0.6, 200), 100)
    gained = certify(GOOD, parent=TRUTH | {"York": "O"}, child=TRUTH | {"Bo": "O"})
    assert gained.verdict.state == "refused", "a gain does not make up for a loss"


WEAK: dict[str, tuple[list[str], Any, dict[str, Any], str]] = {
    "empty": ([], TRUTH, {}, "the evaluation suite is empty"),
    "no gold": (["Ada meets Bo"] * 100, TRUTH, {}, "no gold for any label"),
    "foreign gold": (["<SSN:Ada> meets <EMAIL:Bo>"] * 100, TRUTH, {}, "no gold for any label"),
    "blind": (GOOD, {}, {}, "finds too little of NAME"),
}  # fmt: skip


@pytest.mark.parametrize("case", WEAK)
def test_nothing_is_certified_without_evidence(certify, case):
    texts, parent, floors, reason = WEAK[case]
    done = certify(texts, parent, parent, **floors)
    assert done.verdict.state == done.certificate["state"] == "unknown"
    assert any(reason in given for given in done.verdict.reasons)
    assert {check["verdict"] for check in done.checks if check["name"] == "quant_recall_delta"} == {"unknown"}


def test_checks_say_what_was_measured_on_what(certify):
    done = certify(["<NAME:Ada> meets Bo"] * 100, child=TRUTH | {"Ada": "O"})
    checks = [Check.from_json(check) for check in done.checks]
    assert [(c.name, c.metric, c.value, c.verdict, c.samples, c.limit) for c in checks] == [
        ("character_recall/NAME", "character_recall", 0.0, "fail", 100, None),
        ("character_recall/CITY", "character_recall", None, "unknown", 0, None),
        ("quant_recall_delta", "character_recall", 1.0, "fail", 100, 0.005),
    ]
    assert all(check.dataset == done.verdict.suite for check in checks)
    assert checks[-1].interval == (1.0, 1.0)


SECRETS = ("Ada", "Oslo", "York", "meets", "xyzzy", "secret-id", "suite.jsonl", "offset")


def test_the_certificate_and_the_verdict_hold_no_word_of_the_suite(certify, workspace):
    for child in (TRUTH, TRUTH | {"Bo": "O"}, {}):
        done = certify(["<NAME:Ada> meets xyzzy", *GOOD], child=child)
        published = (workspace / CERTIFICATE).read_text() + repr(done)
        assert not [secret for secret in (*SECRETS, str(workspace)) if secret in published]


# The scores of an artifact are taken from the cache only if everything that shapes them is equal


class Memory:
    """A cache in memory; `values` are by the canonical key."""

    def __init__(self) -> None:
        self.values: dict[bytes, Any] = {}

    def find_value(self, kind: str, key: Mapping[str, Any]) -> Any:
        return self.values.get(canonical.encode({"kind": kind, **key}))

    def remember(self, kind: str, key: Mapping[str, Any], value: Any) -> None:
        self.values[canonical.encode({"kind": kind, **key})] = json.loads(json.dumps(value))


def test_a_map_to_a_label_that_the_model_lacks_is_refused_before_anything_is_made(checkpoint, write_suite):
    value = {"suite": str(write_suite(SENTENCES)), "label_map": {"NAME": "NOBODY"}}
    plan = plan_evaluation(EvaluationRequest.from_json(value), "token-classification", Path(), ())
    with pytest.raises(InputError, match="NOBODY"):
        SourceEvaluation(plan, subject_of(checkpoint()))


@pytest.fixture
def judge(checkpoint: Any, candidate: Any, write_suite: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Judge by a cache; returns True if the artifact was run."""
    cache, runs = Memory(), []
    subject, path = subject_of(checkpoint()), candidate()
    predict = module.predict
    monkeypatch.setattr(module, "predict", lambda *words: runs.append(1) or predict(*words))

    def run(key: Mapping[str, Any] | None = None, **request: Any) -> bool:
        value = {"suite": str(write_suite(SENTENCES)), "metrics": [{"metric": "span_f1"}], **request}
        plan = plan_evaluation(EvaluationRequest.from_json(value), "token-classification", Path(), ())
        runs.clear()
        SourceEvaluation(plan, subject, False, cache, key or {"subject": 1}).judge(path)
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


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (SpanF1, "version", 2),
        (module, "SCORES_VERSION", module.SCORES_VERSION + 1),
        (module, "tools", lambda: {"onnxruntime": "0.0"}),
    ],
)
def test_other_versions_and_tools_are_judged_anew(judge, monkeypatch, owner, name, value):
    monkeypatch.setattr(owner, name, value)
    assert judge()


def test_the_tools_of_a_key_have_the_libraries_of_all_metrics():
    modules = {kind.uses.partition(".")[0] for kind in METRICS}
    assert {name for top in modules for name in distributions().get(top, ())} <= tools().keys()


@pytest.mark.parametrize(
    "value", sampled([None, 3, [], {}, {"tables": ""}, {"tables": ["group\n0\n", "x"]}, {"tables": [{}]}], 3)
)
def test_a_damaged_entry_is_judged_anew(judge, value):
    (key,) = judge.cache.values
    judge.cache.values[key] = value
    assert judge()
    assert not judge()
