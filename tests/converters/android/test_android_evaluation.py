"""`--eval-suite` through the export, on a tagger whose weights are set by hand: one label for each word."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.exports import export_android
from support.registries.drafts import manifest_of

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.draft import Draft

Make = Callable[..., Path]
SAID = {"B-NAME": "w20", "I-NAME": "w21", "B-DATE": "w30", "I-DATE": "w31"}
FAINT = ("w40", "w41", "w42", "w43")
"""Words that the checkpoint calls a name by a hair's breadth, which INT8 does not see."""
CLEAR = [["the patient", "NAME:w20 w21", "was seen on", "DATE:w30 w31", "."]] * 40
"""NAME and DATE have 40 x 7 characters each."""
HAZY = [["the patient", f"NAME:{word}", "was seen by Dr"] for word in FAINT] * 10


@pytest.fixture(scope="module")
def tagger(make_checkpoint: Make) -> Path:
    """A BERT whose layers pass the word embeddings on, which point to the word's label."""
    import torch
    from transformers import AutoTokenizer, BertForTokenClassification

    directory = make_checkpoint("bert")
    model = BertForTokenClassification.from_pretrained(directory)
    words = AutoTokenizer.from_pretrained(directory).get_vocab()
    axes = model.config.label2id
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "LayerNorm" not in name:
                torch.nn.init.normal_(parameter, std=1e-5)
            else:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
        table = model.bert.embeddings.word_embeddings.weight
        table[:, axes["O"]] += 1.0
        for label, word in SAID.items():
            table[words[word], axes["O"]], table[words[word], axes[label]] = 0.0, 1.0
        for number, word in enumerate(FAINT, start=1):
            table[words[word], axes["O"]], table[words[word], axes["B-NAME"]] = 1.0, 1.0005
            table[words[word], -1] = number / 10
        model.classifier.bias.copy_(torch.tensor([1e-4, 0, 0, 0, 0]))
        model.classifier.weight.copy_(torch.eye(*model.classifier.weight.shape))
    model.save_pretrained(directory)
    return directory


def write_suite(path: Path, texts: Sequence[Sequence[str]]) -> Path:
    rows = []
    for number, parts in enumerate(texts):
        text, spans = "", []
        for part in parts:
            label, colon, words = part.partition(":")
            text += " " * bool(text)
            if colon:
                spans.append({"start": len(text), "end": len(text) + len(words), "label": label})
            text += words if colon else part
        rows.append({"id": f"private-{number}", "text": text, "gold_spans": spans})
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture
def evaluate(tagger: Path, tmp_path: Path) -> Callable[..., Draft]:
    def run(texts: Sequence[Sequence[str]], source: Path = tagger, **options: Any) -> Draft:
        (tmp_path / "w").mkdir()
        suite = write_suite(tmp_path / "suite.jsonl", texts)
        chosen = dict(eval_suite=suite, **options)
        return export_android(str(source), tmp_path / "w", name="acme/x", options=chosen)

    return run


def check_bound(draft: Draft, suite: Path) -> dict[str, Any]:
    """What holds in every state; returns the manifest's JSON."""
    found = manifest_of(draft)
    for artifact in found.artifacts:
        metadata = artifact.metadata.to_json()
        assert [spec["name"] for spec in metadata["inputs"]][:2] == ["input_ids", "attention_mask"]
        assert metadata["operators"] and metadata["opset"] == 18
        if artifact.precision == "float32":
            assert artifact.certification.to_json() == {"state": "unknown", "reasons": ["not evaluated"]}
    certificates = {file.path: file for file in found.files if file.role == "certificate"}
    assert set(certificates) == {
        f"certificates/{path}.json" for path in ("model_fp16.onnx", "model_int8.onnx")
    }
    (fp16,) = [artifact for artifact in found.artifacts if artifact.path == "model_fp16.onnx"]
    assert fp16.certification.evidence is not None
    assert fp16.certification.evidence.report == certificates["certificates/model_fp16.onnx.json"].digest
    (int8,) = [artifact for artifact in found.artifacts if artifact.path == "model_int8.onnx"]
    evidence = int8.certification.evidence
    assert evidence is not None and int8.certification.rule == "G4/interval"
    assert (evidence.artifact, evidence.report) == (
        int8.digest,
        certificates["certificates/model_int8.onnx.json"].digest,
    )
    assert evidence.suite == Digest.of(suite.read_bytes())
    assert found.source is not None and evidence.parent == found.source.digest
    for path in draft.paths():
        assert b"private-" not in (draft.root / path).read_bytes()
    value: dict[str, Any] = json.loads(found.encode())
    return value


def int8_of(value: dict[str, Any]) -> dict[str, Any]:
    (found,) = [artifact for artifact in value["artifacts"] if artifact["format"] == "onnx-int8"]
    return dict(found)


def test_certified(evaluate: Callable[..., Draft], tmp_path: Path) -> None:
    draft = evaluate(CLEAR)
    value = check_bound(draft, tmp_path / "suite.jsonl")
    assert int8_of(value)["certification"]["state"] == "certified"
    recalls = {check["name"]: check["value"] for check in int8_of(value)["checks"]}
    assert recalls["character_recall/NAME"] == recalls["character_recall/DATE"] == 1.0


def test_refused(evaluate: Callable[..., Draft], tmp_path: Path) -> None:
    draft = evaluate([*CLEAR, *HAZY])
    value = check_bound(draft, tmp_path / "suite.jsonl")
    certification = int8_of(value)["certification"]
    assert certification["state"] == "refused" and certification["reasons"][0].startswith("NAME loses")
    assert certificate(draft)["loss"] > 0.005


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        (CLEAR, {"min_gold_chars": 281}),
        pytest.param([["the patient was seen"]], {}, marks=pytest.mark.more),
    ],
    ids=["little gold", "no gold"],
)
def test_unknown(
    evaluate: Callable[..., Draft], tmp_path: Path, texts: list[list[str]], options: dict[str, Any]
) -> None:
    draft = evaluate(texts, **options)
    value = check_bound(draft, tmp_path / "suite.jsonl")
    assert int8_of(value)["certification"]["state"] == "unknown"


@pytest.mark.more
def test_random_weights_are_not_certified(evaluate: Callable[..., Draft], bert: Path, tmp_path: Path) -> None:
    draft = evaluate(CLEAR, source=bert)
    value = check_bound(draft, tmp_path / "suite.jsonl")
    assert int8_of(value)["certification"]["state"] == "unknown"


def test_without_a_suite_nothing_was_evaluated(tagger: Path, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    found = manifest_of(export_android(str(tagger), tmp_path / "w", name="acme/x"))
    assert {artifact.certification.reasons for artifact in found.artifacts} == {("not evaluated",)}
    assert not any(file.role == "certificate" for file in found.files)


def test_windows_are_as_long_as_what_is_published(evaluate: Callable[..., Draft], tagger: Path) -> None:
    import torch

    seen: list[int] = []
    whole = torch.nn.Embedding.forward

    def watched(self: torch.nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
        seen.append(ids.shape[-1])
        return whole(self, ids)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Embedding, "forward", watched)
        draft = evaluate([["the patient was seen by Dr"] * 10] * 3, max_seq_length=16)
    assert draft.fields["max_sequence_length"] == max(seen) == 16


@pytest.mark.parametrize(
    "options", [{"min_gold_chars": 0}, {"min_parent_recall": 0.0}, {"min_parent_recall": 70}]
)
def test_a_floor_out_of_range_stops_the_export_before_it_begins(
    evaluate: Callable[..., Draft], tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="minimum evidence"):
        evaluate(CLEAR, source=tmp_path / "never-read", **options)
    assert list((tmp_path / "w").iterdir()) == []


def test_a_bad_suite_stops_the_export_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "suite.json").write_text('[{"text": ""}]')
    options = {"eval_suite": tmp_path / "suite.json"}
    with pytest.raises(InputError, match="item 1: `text` is malformed"):
        export_android(str(tmp_path / "never-read"), tmp_path / "w", name="acme/x", options=options)
    assert list((tmp_path / "w").iterdir()) == []


FOREIGN = [["the patient", "PATIENT:w20 w21", "was seen on", "DATE:w30 w31", "in", "CITY:Oslo", "."]] * 40
"""The model says NAME of what is PATIENT here, and knows no cities."""


def certificate(draft: Draft) -> dict[str, Any]:
    path = draft.root / "certificates" / "model_int8.onnx.json"
    (metric,) = json.loads(path.read_text())["metrics"]
    return dict(metric)


@pytest.mark.parametrize(
    ("label_map", "state", "settings"),
    [
        ({}, "unknown", {"other_labels": {"CITY": 40}, "label_map": {"PATIENT": "NAME"}}),
        (
            {"CITY": None},
            "certified",
            {"other_labels": {}, "label_map": {"PATIENT": "NAME"}, "excluded_labels": {"CITY": 40}},
        ),
        (
            {"CITY": None, "PATIENT": None},
            "certified",
            {"other_labels": {}, "excluded_labels": {"CITY": 40, "PATIENT": 40}},
        ),
    ],
)
def test_every_label_with_gold_is_judged_mapped_or_excluded_by_name(
    evaluate: Callable[..., Draft], label_map: dict[str, str | None], state: str, settings: dict[str, Any]
) -> None:
    draft = evaluate(FOREIGN, label_map=label_map)
    record = certificate(draft)
    assert record["state"] == state
    floors = {"min_gold_chars": 200, "min_parent_recall": 0.5}
    assert record["settings"] == floors | settings
    assert any("CITY" in reason for reason in record["reasons"])


def test_a_loss_near_the_limit_is_unclear_and_refuses_nothing(evaluate: Callable[..., Draft]) -> None:
    draft = evaluate([*CLEAR * 10, *HAZY[:6]])
    record = certificate(draft)
    assert record["loss"] >= 0.005 > record["interval"][0]
    assert (
        record["state"]
        == int8_of(json.loads(manifest_of(draft).encode()))["certification"]["state"]
        == "unknown"
    )
    assert record["reasons"][0].startswith("unclear")
