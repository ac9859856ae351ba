"""The android profile end to end, on tiny checkpoints of each family, and its contract."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from support.exports import export_android
from support.graphs import graph
from support.progress import RecordedSteps
from support.registries.drafts import manifest_of
from support.sampling import sampled
from support.tasks.checkpoints import load_checkpoint

from onnxreg.converters import export as export_model
from onnxreg.converters.engine import measure
from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.onnx.facts import inspect_file
from onnxreg.converters.onnx.mobile_rules import MOBILE_SAFE_OPS, check_contract
from onnxreg.converters.passes import conversion, samples
from onnxreg.converters.passes.conversion import TorchModel
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime.golden import self_test
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.tasks import text
from onnxreg.converters.tasks.task import TOKENS, Part
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

FAMILIES = sampled(("bert", "distilbert", "roberta", "electra", "xlm-roberta"), 5, pytest.mark.large)


def export(source: Path, workspace: Path, **options: Any) -> Draft:
    workspace.mkdir()
    return export_android(str(source), workspace, name="acme/x", options=dict(**options))


def by_path(draft: Draft) -> dict[str, DraftArtifact]:
    return {artifact.path: artifact for artifact in draft.artifacts}


@pytest.fixture(scope="module")
def draft(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Draft:
    """One export that several tests read; its manifest is frozen in `fixtures/exports/android.json`."""
    return export(bert, tmp_path_factory.mktemp("export") / "workspace")


def test_files_are_those_of_the_draft_and_graphs_pass_the_full_checker(draft):
    assert {path.name for path in draft.root.iterdir()} == set(draft.paths())
    graphs = ["model.onnx", "model_fp16.onnx", "model_int8.onnx", "model.ort"]
    assert [(item.path, item.parent) for item in draft.artifacts] == [
        (path, None if path == "model.onnx" else "model.onnx") for path in graphs
    ]
    for path in graphs[:3]:
        onnx.checker.check_model(str(draft.root / path), full_check=True)
    tools = {"isa", "onnx", "onnx-ir", "onnxruntime", "torch", "transformers"}
    assert draft.fields["recipe"]["tools"].keys() >= tools


def test_golden_vectors_and_parity_of_every_artifact(draft):
    for artifact in draft.artifacts:
        path = draft.root / f"{artifact.path}.golden.json"
        assert artifact.sidecars[-1] == DraftFile("golden", path.name)
        assert path.stat().st_size < 64_000
        compared = self_test(draft.root / artifact.path, path.read_bytes(), path.name)
        assert [each.case for each in compared] == ["row", "padded"]
        assert all(each.passed and each.max_abs_error < each.tolerance.atol / 50 for each in compared)
        parity = artifact.fields["checks"][0]["value"]
        assert all(each.tolerance.atol >= 0.98 * parity for each in compared)
        assert (parity < 1e-5) is (artifact.path in ("model.onnx", "model.ort"))


def test_companions(draft, bert):
    config = json.loads((draft.root / "config.json").read_text())
    assert config["_name_or_path"] == "acme/x"
    assert config["max_sequence_length"] == 40
    labels = json.loads((draft.root / "id2label.json").read_text())
    assert list(labels) == ["0", "1", "2", "3", "4"]
    assert list(labels.values()) == ["O", "B-NAME", "I-NAME", "B-DATE", "I-DATE"]
    assert config["id2label"] == labels
    before = json.loads((bert / "tokenizer.json").read_text())
    tokenizer = json.loads((draft.root / "tokenizer.json").read_text())
    assert before["padding"] and before["truncation"]
    assert tokenizer["padding"] is None and tokenizer["truncation"] is None
    tokenizer_config = json.loads((draft.root / "tokenizer_config.json").read_text())
    assert not {"is_local", "local_files_only", "name_or_path"} & tokenizer_config.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_rewrite_leaves_nothing_unsafe_and_changes_nothing(family, make_checkpoint, tmp_path):
    source, kept = make_checkpoint(family), tmp_path / "kept.onnx"
    rewritten = export(source, tmp_path / "rewritten", int8=False)
    for path in ("model.onnx", "model_fp16.onnx"):
        assert by_path(rewritten)[path].fields["metadata"]["unsupported_ops"] == []
        assert by_path(rewritten)[path].fields["metadata"]["warnings"] == []
    export_model(str(source), "token-classification", kept, opset=18)
    assert {node.op_type for node in onnx.load(kept).graph.node} - MOBILE_SAFE_OPS
    feeds = batches(source)
    graphs = kept, rewritten.root / "model.onnx"
    before, after = (samples.all_outputs(path, feeds, path.name) for path in graphs)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old["logits"], new["logits"])
    examples = {name: torch.from_numpy(array) for name, array in feeds[0].items()}
    module = TorchModel(load_checkpoint(str(source), TOKENS).model, examples)
    sample = Part(None, feeds, conversion.run(module, feeds), frozenset({"logits"}))
    expected, got = (measure.drop_padding(each, sample) for each in (sample.expected, after))
    assert samples.compare(expected, got, "it")["logits"].max_abs_diff < 1e-5


def batches(source: Path) -> list[Feed]:
    """Padded and unpadded batches of one and of three, from one token to as many as the model takes."""
    checkpoint = load_checkpoint(str(source), TOKENS)
    longest = text.longest(512, checkpoint.model)
    draw = np.random.default_rng(1)
    feeds = []
    for lengths in ([1], [2, 1, 2], [longest], [longest, 3, 17], [5, 5, 5]):
        feed = {
            name: np.zeros((len(lengths), max(lengths)), np.int64)
            for name in text.input_names(checkpoint, TOKENS)
        }
        feed["input_ids"][:] = 1 if "roberta" in source.name else 0
        for row, length in enumerate(lengths):
            feed["input_ids"][row, :length] = draw.integers(5, 64, length)
            feed["attention_mask"][row, :length] = 1
        feeds.append(feed)
    return feeds


@pytest.mark.more
def test_int8_embeddings_are_smaller_and_checked(bert, draft, tmp_path):
    quantized = by_path(export(bert, tmp_path / "w", int8_embeddings=True))["model_int8.onnx"]
    check = next(check for check in quantized.fields["checks"] if check["name"] == "embeddings")
    assert 0.9 < check["value"] < 1 and check["samples"] == 3
    measured = quantized.fields["quantization"]["measured"]
    assert measured["weights_total"] - measured["weights_quantized"] == 3  # the scales of the rows
    small, plain = (root / "model_int8.onnx" for root in (tmp_path / "w", draft.root))
    assert small.stat().st_size < plain.stat().st_size


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"opset": 17}, "--opset is not an option of the profile android"),
        ({"max_seq_length": 0}, "greater than or equal to 1"),
        ({"int8": False, "int8_embeddings": True}, "--int8-embeddings is of the INT8 file"),
        ({"item_scores": True}, "no suite is named"),
        ({"min_parent_recall": 0.7}, "--min-parent-recall is of an evaluation, and no suite is named"),
    ],
    ids=["opset", "length", "embeddings", "suite", "minimum"],
)  # fmt: skip
def test_options_that_the_profile_does_not_have(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        export(tmp_path / "never-read", tmp_path / "w", **options)
    assert list((tmp_path / "w").iterdir()) == []


def test_names(bert, tmp_path):
    with pytest.raises(InputError, match="no model name of its own") as caught:
        export_android(str(bert), tmp_path)
    assert caught.value.hint == "pass --name NAME"
    with pytest.raises(InputError, match="not a model name"):
        export_android(str(bert), tmp_path, name="Not A Name")
    with pytest.raises(NotFoundError):
        export_android(str(tmp_path / "nowhere"), tmp_path, name="x")


def test_the_licence_of_the_card_is_kept_and_local_paths_of_the_config_are_replaced(
    make_checkpoint, tmp_path
):
    source = make_checkpoint("distilbert")
    (source / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Model\n")
    config = json.loads((source / "config.json").read_text())
    config |= {"best_checkpoint": "/home/jane/runs/7", "note": f"trained in {source}/part"}
    config |= {"paths": {"/home/jane/data": 1}, "_name_or_path": "/home/jane/base"}
    (source / "config.json").write_text(json.dumps(config))
    found = export(source, tmp_path / "w", int8=False)
    assert found.fields["license"] == "apache-2.0"
    written = json.loads((found.root / "config.json").read_text())
    assert (written["note"], written["paths"]) == ("trained in part", {"data": 1})
    assert b"/home/jane" not in (found.root / "config.json").read_bytes()
    scrubbed = [f"config.json:{key}" for key in ("best_checkpoint", "note", "paths.data")]
    assert found.fields["recipe"]["parameters"]["got"]["scrubbed"] == scrubbed


@pytest.mark.more
def test_nothing_is_written_elsewhere(bert, tmp_path, monkeypatch):
    for name in ("cwd", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    before = sorted(bert.iterdir())
    steps = RecordedSteps()
    (tmp_path / "w").mkdir()
    export_android(str(bert), tmp_path / "w", name="x", progress=steps)
    assert list((tmp_path / "cwd").iterdir()) == list((tmp_path / "tmp").iterdir()) == []
    assert sorted(bert.iterdir()) == before
    assert steps.labels[0] == "loading the source" and len(steps.labels) >= 3


OWN_CODE = """
from transformers import BertForTokenClassification

class Tagger(BertForTokenClassification):
    def forward(self, *args, **kwargs):
        found = super().forward(*args, **kwargs)
        found.logits = found.logits + 100.0
        return found
"""


@pytest.fixture
def own(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A BERT whose own code adds 100 to every logit."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    directory = Path(shutil.copytree(bert, tmp_path / "own_checkpoint"))
    (directory / "own.py").write_text(OWN_CODE)
    config = json.loads((directory / "config.json").read_text())
    config["auto_map"] = {"AutoModelForTokenClassification": "own.Tagger"}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.more
def test_trusted_code_is_exported_and_the_trust_recorded(own, bert, tmp_path):
    for source, trusted in ((own, True), (bert, False)):
        workspace = tmp_path / f"trusted is {trusted}"
        workspace.mkdir()
        options = {"int8": False}
        draft = export_android(source, workspace, "acme/own", options, trust_remote_code=trusted)
        assert draft.fields["recipe"]["trust_remote_code"] is trusted
        session = load_session(workspace / "model.onnx")
        (logits,) = session.run(["logits"], {item.name: [[1, 1, 1]] for item in session.get_inputs()})
        assert bool(logits.min() > 50) is trusted


INPUTS = "int64[batch, sequence] input_ids, int64[batch, sequence] attention_mask"
SWAPPED = "int64[batch, sequence] attention_mask, int64[batch, sequence] input_ids"
OUTPUT = "float[batch, sequence, 3] logits"

BODY = """
    ids = Cast<to = 1>(input_ids)
    last = Constant<value = int64[1] {2}>()
    scores = Constant<value = float[3] {1, 2, 3}>()
    rows = Unsqueeze(ids, last)
    logits = Mul(rows, scores)
"""


def check(tmp_path: Path, inputs: str = INPUTS, output: str = OUTPUT, labels: int = 3, **facts: Any) -> None:
    onnx.save(graph(BODY, inputs, output), tmp_path / "m.onnx")
    check_contract(replace(inspect_file(tmp_path / "m.onnx"), **facts), "m.onnx", labels)


def test_accepted_contracts(tmp_path):
    check(tmp_path)
    check(tmp_path, INPUTS + ", int64[batch, sequence] token_type_ids")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"opset_imports": {"ai.onnx": 17}}, "opset 17"),
        ({"opset_imports": {"other": 1}}, "opset None"),
        ({"inputs": f"{INPUTS}, int64[batch, sequence] position_ids"}, "inputs are input_ids, attention_mask, position_ids"),
        ({"inputs": SWAPPED}, "inputs are attention_mask, input_ids"),
        ({"inputs": INPUTS.replace("int64", "int32", 1)}, "input_ids is int32[batch, sequence], expected int64[batch, sequence]"),
        ({"inputs": INPUTS.replace("sequence", "seq", 1)}, "input_ids is int64[batch, seq], expected"),
        ({"inputs": INPUTS.replace("batch", "1", 1)}, "input_ids is int64[1, sequence], expected"),
        ({"output": OUTPUT + ", int64[batch, sequence] input_ids"}, "the only output must be logits"),
        ({"labels": 4}, "logits is float32[batch, sequence, 3], expected float32[batch, sequence, 4]"),
    ],
)  # fmt: skip
def test_refused_contracts(tmp_path, change, message):
    with pytest.raises(ConversionError, match=r"m\.onnx: ") as caught:
        check(tmp_path, **change)
    assert message in caught.value.message


# `--eval-suite`, on a tagger whose weights are set by hand: one label for each word

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


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> StepCache:
    """The steps of the tagger's exports, which the suites have in common."""
    return StepCache(tmp_path_factory.mktemp("steps"))


@pytest.fixture
def evaluate(tagger: Path, steps: StepCache, tmp_path: Path) -> Evaluate:
    def run(texts: Sequence[Sequence[str]], **options: Any) -> Draft:
        (tmp_path / "w").mkdir()
        suite = write_suite(tmp_path / "suite.jsonl", texts)
        chosen = dict(eval_suite=suite, **options)
        return export_android(str(tagger), tmp_path / "w", name="acme/x", options=chosen, cache=steps)

    return run


def certificate(draft: Draft) -> dict[str, Any]:
    path = draft.root / "certificates" / "model_int8.onnx.json"
    (metric,) = json.loads(path.read_text())["metrics"]
    return dict(metric)


CASES = {"clear": (CLEAR, "certified", ""), "hazy": ([*CLEAR, *HAZY], "refused", "NAME loses")}


@pytest.mark.parametrize("case", sampled(CASES, 2))
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


@pytest.mark.more
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
        pytest.param({}, "unknown", {"other_labels": {"CITY": 40}, **MAPPED}, marks=pytest.mark.more),
        pytest.param({"CITY": None}, "certified", {"other_labels": {}, "excluded_labels": {"CITY": 40}, **MAPPED}, marks=pytest.mark.more),
        ({"CITY": None, "PATIENT": None}, "certified", {"other_labels": {}, "excluded_labels": {"CITY": 40, "PATIENT": 40}}),
    ],
)  # fmt: skip
def test_every_label_with_gold_is_judged_mapped_or_excluded_by_name(evaluate, label_map, state, settings):
    record = certificate(evaluate(FOREIGN, label_map=label_map))
    assert record["state"] == state
    assert record["settings"] == {"min_gold_chars": 200, "min_parent_recall": 0.5, **settings}
    assert any("CITY" in reason for reason in record["reasons"])
