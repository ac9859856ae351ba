import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from support.evaluation import subject_of

from onnxreg.converters.evaluation.evaluate import SourceEvaluation, evaluate, plan_evaluation
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.inputs.recipe_file import EvaluationRequest
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, Verdict
from onnxreg.schema.manifest.manifest import Check, Source

CERTIFICATE = "certificates/model_int8.onnx.json"
TRUTH = {"Ada": "B-NAME", "Bo": "B-NAME", "Cy": "I-NAME", "Oslo": "B-CITY", "New": "B-CITY", "York": "I-CITY"}
SENTENCES = ["<NAME:Ada> meets <NAME:Bo> in <CITY:New York>", "<NAME:Cy> and <NAME:Ada> in <CITY:Oslo>"]
GOOD = [SENTENCES[number % 2] for number in range(100)]
"""NAME: 50 x (3 + 2 + 2 + 3) = 500 characters, CITY: 50 x (8 + 4) = 600."""


@pytest.fixture
def certify(
    checkpoint: Callable[..., Any],
    candidate: Callable[..., Path],
    write_suite: Callable[..., Path],
    workspace: Path,
) -> "Callable[..., RecallEvaluation]":
    def run(texts: list[str], parent: Any = TRUTH, child: Any = TRUTH, **floors: Any) -> "RecallEvaluation":
        return certify_int8(write_suite(texts), checkpoint(parent), candidate(child), workspace, **floors)

    return run


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


def certify_int8(
    suite: Path, parent: Any, candidate: Path, workspace: Path, max_length: int = 512, **floors: Any
) -> RecallEvaluation:
    """Judge a file as the android profile does."""
    shutil.copy(candidate, workspace / "model_int8.onnx")
    metrics = [{"metric": "character_recall", "settings": floors}]
    value = {"suite": str(suite), "metrics": metrics, "label_names": "openmed"}
    request = EvaluationRequest.from_json(value)
    plan = plan_evaluation(request, "token-classification", Path(), ["model_int8.onnx"])
    draft = Draft("acme/names", workspace, (DraftArtifact("onnx-int8", "int8", "model_int8.onnx"),))
    draft = evaluate(SourceEvaluation(plan, lambda: subject_of(parent, max_length)), draft)
    (artifact,) = draft.artifacts
    certificate = json.loads((workspace / CERTIFICATE).read_bytes())
    return RecallEvaluation(artifact.verdict, artifact.fields["checks"], certificate)


def test_equal_models_are_certified(certify: Callable[..., RecallEvaluation], workspace: Path) -> None:
    done = certify(GOOD)
    assert (done.verdict.state, done.verdict.rule, done.verdict.report) == (
        "certified",
        "G4/interval",
        CERTIFICATE,
    )
    assert done.verdict.suite == Digest.of((workspace.parent / "suite.jsonl").read_bytes())
    written = {path.relative_to(workspace).as_posix() for path in workspace.rglob("*") if path.is_file()}
    assert written == {"model_int8.onnx", CERTIFICATE}
    assert (done.metric["loss"], done.metric["limit"], done.certificate["state"]) == (0.0, 0.005, "certified")


def test_a_loss_is_refused_and_still_written(certify: Callable[..., RecallEvaluation]) -> None:
    done = certify(GOOD, child=TRUTH | {"Bo": "O", "Cy": "B-CITY"})
    assert done.verdict.state == done.certificate["state"] == "refused"
    assert done.verdict.reasons[0].startswith("NAME loses 0.4 of its recall")
    assert done.metric["loss"] == 0.4
    figures = {check["name"]: (check["value"], check["samples"]) for check in done.checks}
    assert figures["character_recall/NAME"] == (0.6, 200)
    assert figures["character_recall/CITY"][1] == 100


def test_a_gain_does_not_make_up_for_a_loss(certify: Callable[..., RecallEvaluation]) -> None:
    done = certify(GOOD, parent=TRUTH | {"York": "O"}, child=TRUTH | {"Bo": "O"})
    assert done.verdict.state == "refused"


@pytest.mark.parametrize(
    ("texts", "parent", "floors", "reason"),
    [
        ([], TRUTH, {}, "the evaluation suite is empty"),
        (["Ada meets Bo"] * 100, TRUTH, {}, "no gold for any label"),
        (["<SSN:Ada> meets <EMAIL:Bo>"] * 100, TRUTH, {}, "no gold for any label"),
        (GOOD[:20], TRUTH, {}, "NAME has 100 gold characters, 200 are needed"),
        (GOOD, TRUTH, {"min_gold_chars": 501}, "NAME has 500 gold characters, 501 are needed"),
        (GOOD, {}, {}, "finds too little of NAME"),
        (GOOD, TRUTH | {"Bo": "O"}, {"min_parent_recall": 0.81}, "finds too little of NAME: recall 0.8000"),
        (
            GOOD,
            dict.fromkeys(["[UNK]", "meets", "in", "and", *TRUTH], "I-NAME"),
            {},
            "false alarms on 1.0000",
        ),
        (["<NAME:Ada>"] * 100, TRUTH, {}, "finds too little of NAME: recall 1.0000"),
    ],
    ids=[
        "empty",
        "no gold",
        "foreign gold",
        "little gold",
        "gold floor",
        "blind",
        "recall floor",
        "constant",
        "bare",
    ],
)
def test_nothing_is_certified_without_evidence(
    certify: Callable[..., RecallEvaluation],
    texts: list[str],
    parent: Any,
    floors: Any,
    reason: str,
) -> None:
    done = certify(texts, parent, parent, **floors)
    assert done.verdict.state == "unknown"
    assert any(reason in given for given in done.verdict.reasons)
    assert {check["verdict"] for check in done.checks if check["name"] == "quant_recall_delta"} == {"unknown"}
    assert done.certificate["state"] == "unknown"


def test_checks_say_what_was_measured_on_what(certify: Callable[..., RecallEvaluation]) -> None:
    done = certify(["<NAME:Ada> meets Bo"] * 100, child=TRUTH | {"Ada": "O"})
    checks = [Check.from_json(check) for check in done.checks]
    assert [(c.name, c.metric, c.value, c.verdict, c.samples, c.limit) for c in checks] == [
        ("character_recall/NAME", "character_recall", 0.0, "fail", 100, None),
        ("character_recall/CITY", "character_recall", None, "unknown", 0, None),
        ("quant_recall_delta", "character_recall", 1.0, "fail", 100, 0.005),
    ]
    assert all(check.dataset == done.verdict.suite for check in checks)
    assert checks[-1].interval == (1.0, 1.0)


def test_the_certificate_and_the_verdict_hold_no_word_of_the_suite(
    certify: Callable[..., RecallEvaluation], workspace: Path
) -> None:
    for child in (TRUTH, TRUTH | {"Bo": "O"}, {}):
        done = certify(["<NAME:Ada> meets xyzzy", *GOOD], child=child)
        published = (workspace / CERTIFICATE).read_text() + repr(done)
        for secret in (
            "Ada",
            "Oslo",
            "York",
            "meets",
            "xyzzy",
            "secret-id",
            str(workspace),
            "suite.jsonl",
            "offset",
        ):
            assert secret not in published


def test_the_certificate_is_the_same_bytes_again(
    certify: Callable[..., RecallEvaluation], workspace: Path
) -> None:
    certify(GOOD, child=TRUTH | {"Bo": "O"})
    first = (workspace / CERTIFICATE).read_bytes()
    certify(GOOD, child=TRUTH | {"Bo": "O"})
    assert (workspace / CERTIFICATE).read_bytes() == first
    assert first.endswith(b"}\n")


def test_texts_are_cut_to_what_is_published(
    checkpoint: Callable[..., Any],
    candidate: Callable[..., Path],
    write_suite: Callable[..., Path],
    workspace: Path,
) -> None:
    parent, longest = checkpoint(), 0
    whole = parent.model.forward

    def seen(input_ids: torch.Tensor, **rest: torch.Tensor) -> Any:
        nonlocal longest
        longest = max(longest, input_ids.shape[1])
        return whole(input_ids, **rest)

    parent.model.forward = seen
    suite = write_suite([" ".join([SENTENCES[0]] * 20)] * 2)
    for size in (16, 64):
        certify_int8(suite, parent, candidate(), workspace, max_length=size)
        assert longest == size


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
def test_a_random_model_is_not_certified_against_itself(
    tokenizer: "transformers.PreTrainedTokenizerFast",
    write_suite: Callable[..., Path],
    workspace: Path,
    tmp_path: Path,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=14,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=3,
    )
    model = transformers.BertForTokenClassification(config).eval()
    parent = SimpleNamespace(
        model=model,
        tokenizer=tokenizer,
        labels=("O", "B-NAME", "I-NAME"),
        source=Source(id="acme/random", digest=None),
    )
    path = tmp_path / "same.onnx"
    export(model, path)
    texts = [
        "<NAME:Ada> meets Bo in Oslo and <NAME:Cy> in Rome",
        "New York and Rome <NAME:Bo> meets Ada",
    ] * 60
    done = certify_int8(write_suite(texts), parent, path, workspace)
    assert done.verdict.state == "unknown"


def export(model: "transformers.BertForTokenClassification", path: Path) -> None:
    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).logits  # type: ignore[no-any-return]

    names = ["input_ids", "attention_mask"]
    sample = torch.ones(2, 5, dtype=torch.int64)
    axes = {name: {0: "batch", 1: "sequence"} for name in [*names, "logits"]}
    torch.onnx.export(
        Logits(),
        (sample, sample),
        str(path),
        input_names=names,
        output_names=["logits"],
        dynamic_axes=axes,
        opset_version=18,
        dynamo=False,
    )
