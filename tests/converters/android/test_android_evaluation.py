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


Evaluate = Callable[..., Draft]


@pytest.fixture
def evaluate(tagger: Path, tmp_path: Path) -> Evaluate:
    def run(texts: Sequence[Sequence[str]], **options: Any) -> Draft:
        (tmp_path / "w").mkdir()
        suite = write_suite(tmp_path / "suite.jsonl", texts)
        chosen = dict(eval_suite=suite, **options)
        return export_android(str(tagger), tmp_path / "w", name="acme/x", options=chosen)

    return run


def certificate(draft: Draft) -> dict[str, Any]:
    path = draft.root / "certificates" / "model_int8.onnx.json"
    (metric,) = json.loads(path.read_text())["metrics"]
    return dict(metric)


CASES = {"clear": (CLEAR, "certified", ""), "hazy": ([*CLEAR, *HAZY], "refused", "NAME loses")}


@pytest.mark.parametrize("case", CASES)
def test_the_state_of_int8_is_bound_to_the_suite_and_its_parent(evaluate, tmp_path, case):
    texts, state, reason = CASES[case]
    draft = evaluate(texts)
    manifest = manifest_of(draft)
    full, fp16, int8, _ = manifest.artifacts
    assert full.certification.to_json() == {"state": "unknown", "reasons": ["not evaluated"]}
    certificates = {file.path: file.digest for file in manifest.files if file.role == "certificate"}
    assert [*certificates] == [f"certificates/{each.path}.json" for each in (fp16, int8)]
    for artifact in (fp16, int8):
        evidence = artifact.certification.evidence
        assert evidence is not None and manifest.source is not None
        assert (evidence.artifact, evidence.parent) == (artifact.digest, manifest.source.digest)
        assert evidence.report == certificates[f"certificates/{artifact.path}.json"]
        assert evidence.suite == Digest.of((tmp_path / "suite.jsonl").read_bytes())
    for path in draft.paths():
        assert b"private-" not in (draft.root / path).read_bytes()
    record = certificate(draft)
    assert int8.certification.state == record["state"] == state
    assert int8.certification.rule == "G4/interval"
    assert reason in " ".join(int8.certification.reasons)
    if case == "clear":
        recalls = {check["name"]: check["value"] for check in int8.to_json()["checks"]}
        assert recalls["character_recall/NAME"] == recalls["character_recall/DATE"] == 1.0
    elif case == "hazy":
        assert record["loss"] > 0.005


def test_windows_are_as_long_as_what_is_published(evaluate, monkeypatch):
    import torch

    seen: list[int] = []
    whole = torch.nn.Embedding.forward

    def watched(self: torch.nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
        seen.append(ids.shape[-1])
        return whole(self, ids)

    monkeypatch.setattr(torch.nn.Embedding, "forward", watched)
    draft = evaluate([["the patient was seen by Dr"] * 10] * 3, max_seq_length=16)
    assert draft.fields["max_sequence_length"] == max(seen) == 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({key: value}, "minimum evidence") for key, value in (
            ("min_gold_chars", 0), ("min_parent_recall", 0.0), ("min_parent_recall", 70))),
        ({"eval_suite": "bad.json"}, "item 1: `text` is malformed"),
    ],
)  # fmt: skip
def test_floors_and_suites_that_cannot_be_stop_the_export_before_it_begins(tmp_path, options, message):
    (tmp_path / "w").mkdir()
    (tmp_path / "bad.json").write_text('[{"text": ""}]')
    chosen = {"eval_suite": write_suite(tmp_path / "suite.jsonl", CLEAR), **options}
    chosen["eval_suite"] = tmp_path / chosen["eval_suite"]
    with pytest.raises(InputError, match=message):
        export_android(tmp_path / "never-read", tmp_path / "w", name="acme/x", options=chosen)
    assert list((tmp_path / "w").iterdir()) == []


FOREIGN = [["the patient", "PATIENT:w20 w21", "was seen on", "DATE:w30 w31", "in", "CITY:Oslo", "."]] * 40
"""The model says NAME of what is PATIENT here, and knows no cities."""
MAPPED = {"label_map": {"PATIENT": "NAME"}}


@pytest.mark.parametrize(
    ("label_map", "state", "settings"),
    [
        ({}, "unknown", {"other_labels": {"CITY": 40}, **MAPPED}),
        ({"CITY": None}, "certified", {"other_labels": {}, "excluded_labels": {"CITY": 40}, **MAPPED}),
        ({"CITY": None, "PATIENT": None}, "certified", {"other_labels": {}, "excluded_labels": {"CITY": 40, "PATIENT": 40}}),
    ],
)  # fmt: skip
def test_every_label_with_gold_is_judged_mapped_or_excluded_by_name(evaluate, label_map, state, settings):
    record = certificate(evaluate(FOREIGN, label_map=label_map))
    assert record["state"] == state
    assert record["settings"] == {"min_gold_chars": 200, "min_parent_recall": 0.5, **settings}
    assert any("CITY" in reason for reason in record["reasons"])
