"""`reg run`: the self-test, tensors, and texts of every task against the same checkpoint run by transformers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import transformers
from support.command_line import Reg
from support.docs.nets import write_llama
from tokenizers import Tokenizer, models, pre_tokenizers

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.passes.base import GoldenVectors, Outputs
from onnxreg.converters.runtime import golden
from onnxreg.converters.runtime.golden import Runnable
from onnxreg.converters.tasks.task_catalog import task_recipe
from onnxreg.registry import Registry
from onnxreg.registry.store.protocol import blob_path
from onnxreg.schema.inputs.recipe_file import RecipeFile
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

WORDS = ["[UNK]", "Anna", "Keller", "met", "Bob", "on", "Monday"]
LABELS = ["O", "B-NAME", "I-NAME", "B-DATE", "I-DATE"]
TABLE = np.eye(len(LABELS), dtype=np.float32)[[0, 1, 2, 0, 1, 0, 3]] * 4
GRAPH = """<ir_version: 8, opset_import: ["" : 18]>
g (int64[batch, sequence] input_ids, int64[batch, sequence] attention_mask) => (float[batch, sequence, 5] logits)
{ logits = Gather(table, input_ids) }"""
SELF_TEST = ("run", "acme/tags", "--self-test")


@pytest.fixture
def tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A tagger that looks up the tag of each word; its second artifact brings no golden vectors."""
    root = tmp_path / "draft"
    root.mkdir()
    for name in ("model.onnx", "bare.onnx"):
        graph = onnx.parser.parse_model(GRAPH)
        graph.graph.initializer.append(onnx.numpy_helper.from_array(TABLE, "table"))
        onnx.save(graph, root / name)
    ids = np.array([[1, 2, 3, 4]])
    feeds = {"row": {"input_ids": ids, "attention_mask": np.ones_like(ids)}}
    made = Outputs(root / "model.onnx", feeds, {"row": {"logits": TABLE[ids]}})
    sidecar = DraftFile(golden.ROLE, GoldenVectors(tolerance=1e-3).apply(made).name)
    words = {word: index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(root / "tokenizer.json"))
    full = DraftArtifact("onnx-android", "float32", "model.onnx", sidecars=(sidecar,))
    artifacts, files = (
        (full, DraftArtifact("onnx", "float32", "bare.onnx")),
        (DraftFile("tokenizer", "tokenizer.json"),),
    )
    fields = {"labels": LABELS, "max_sequence_length": 4, "task": "token-classification"}
    registry = Registry(tmp_path / "tags")
    registry.add(Draft("acme/tags", root, artifacts, files, fields), "1.0.0")
    monkeypatch.setenv("REG_HOME", str(registry.store.root))
    return registry


def test_the_self_test(reg, tags, monkeypatch):
    """From a remote nothing is kept; another result is 8, and damaged bytes are not run."""
    done = reg(*SELF_TEST)
    assert (done.status, done.err) == (0, "")
    header, row, *rest = done.out.splitlines()
    assert header.split("  ")[0] == "CASE" and row.split()[:3] == ["row", "logits", "20"]
    assert rest[-1].startswith("model.onnx in ONNX Runtime ") and rest[-1].endswith(": pass")
    value = reg(*SELF_TEST, "--json").json
    assert list(value) == ["name", "version", "path", "runtime", "passed", "cases"]
    assert value["passed"] is True and value["cases"][0]["max_abs_error"] == 0
    Registry("empty")
    assert reg("--registry", "empty", *SELF_TEST, "--remote", tags.store.root).status == 0
    assert Registry("empty").names() == []
    assert reg(*SELF_TEST, "--format", "onnx").ended(3, "bare.onnx has no golden vectors", "--input")
    right = Runnable.run
    with monkeypatch.context() as patch:
        patch.setattr(Runnable, "run", lambda *all: {name: it + 0.1 for name, it in right(*all).items()})
        assert reg(*SELF_TEST).ended(8, ": fail", "gives other values here")
        assert reg(*SELF_TEST, "--json").json["passed"] is False
    path = tags.store.root / blob_path(tags.resolve("acme/tags").artifact.digest)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert reg(*SELF_TEST).status == 4


def test_spans_of_a_text(reg, tags):
    """Longer than the four tokens that the model takes at once."""
    words = ("run", "acme/tags", "--text")
    value = reg(*words, "Anna Keller met Bob on Monday", "--json").json
    spans = [tuple(each[key] for key in ("start", "end", "label", "text")) for each in value["spans"]]
    assert spans == [(0, 11, "NAME", "Anna Keller"), (16, 19, "NAME", "Bob"), (23, 29, "DATE", "Monday")]
    shown = reg(*words, "Anna Keller met Bob").out.splitlines()
    assert shown[1].split() == ["NAME", "0", "11", "Anna", "Keller"]
    for text in ("", "met on"):
        assert reg(*words, text).out == "no labelled spans\n"
    assert reg(*words, "met on").err == "answered by acme/tags:1.0.0: model.onnx\n"
    for quiet in (reg(*words, "met on", "--json"), reg("--quiet", *words, "met on")):
        assert quiet.err == ""


def test_outputs_for_tensors(reg, tags):
    """Inputs of another shape or value are told in the runtime's words, without its codes."""

    def run(ids: Any, *words: str) -> Any:
        Path("feeds.json").write_text(json.dumps({"input_ids": ids, "attention_mask": [[1, 1]]}))
        return reg("run", "acme/tags", "--input", "feeds.json", *words)

    data = [0, 4, 0, 0, 0, 4, 0, 0, 0, 0]
    assert run([[1, 3]], "--json").json["outputs"] == {
        "logits": {"dtype": "float32", "shape": [1, 2, 5], "data": data}
    }
    assert run([[1, 3]]).ended(0, "1x2x5")
    one_axis = {"dtype": "int64", "shape": [2], "data": [1, 3]}
    beyond = {"dtype": "int64", "shape": [1, 1], "data": [99]}
    for ids, told in ((one_axis, "Got: 1 Expected: 2"), (beyond, "indices element out of data bounds")):
        done = run(ids)
        assert done.ended(2, told) and "ONNXRuntimeError" not in done.err
        assert done.err.startswith("error: model.onnx does not run on these inputs: ")
    onnx.save(onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 18]> g () => () {}'), "model.onnx")
    done = reg("run", "acme/tags", "--input", "model.onnx")
    assert done.ended(2, "model.onnx is not an .npz file, and cannot be read as JSON: it is not")


# Texts of every task

TASKS = {
    "token-classification": "TokenClassification",
    "text-classification": "SequenceClassification",
    "question-answering": "QuestionAnswering",
    "feature-extraction": "",
    "pooling": "",
}
TEXT, OTHER = "the patient was seen by Dr w20 on w21 .", "w30 w31 the w32 ,"
LONG = " ".join(f"w{number % 50}" for number in range(60))
QUESTION = "w20 w21 ?"
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def trained(
    make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Any]:
    """A registry with a tiny model of each task, and the checkpoints."""
    root = tmp_path_factory.mktemp("texts")
    registry, checkpoints = Registry(root / "home"), {}
    for task, head in TASKS.items():
        checkpoints[task] = make_checkpoint("bert", task=head)
        with registry.workspace() as workspace:
            plan = plan_export(task_recipe(task, max_seq_length=32), str(checkpoints[task]), f"acme/{task}")
            registry.add(execute(plan, workspace))
    return registry.store.root, checkpoints


@pytest.fixture
def answer(reg: Reg, trained: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What `reg run --json` prints, without the identity of the artifact."""
    monkeypatch.setenv("REG_HOME", str(trained[0]))

    def run(task: str, *words: str) -> Any:
        value = reg("run", f"acme/{task}", *words, "--json").json
        assert value.pop("name") == f"acme/{task}"
        return {key: item for key, item in value.items() if key not in ("version", "path", "runtime")}

    return run


@pytest.fixture
def reference(trained: tuple[Path, Any]) -> Callable[..., Any]:
    """The outputs of a checkpoint in PyTorch, and the tokens that transformers makes."""

    def run(task: str, *texts: str) -> Any:
        source = trained[1][task]
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        options = {"truncation": True, "max_length": 32, "padding": False, "return_offsets_mapping": True}
        tokens = tokenizer(*texts, return_tensors="pt", **options)
        offsets = tokens.pop("offset_mapping")[0].numpy()
        model = getattr(transformers, f"AutoModelFor{TASKS[task]}" if TASKS[task] else "AutoModel")
        with torch.inference_mode():
            return model.from_pretrained(source).eval()(**tokens), tokens, offsets

    return run


def test_token_classification(answer, reference):
    outputs, _, offsets = reference("token-classification", TEXT)
    names, tags = ["", "NAME", "NAME", "DATE", "DATE"], outputs.logits[0].argmax(dim=1).tolist()
    covered = {at: names[tag] for tag, ends in zip(tags, offsets, strict=True) for at in range(*ends)}
    spans = answer("token-classification", "--text", TEXT)["spans"]
    assert spans
    for span in spans:
        start, end = span["start"], span["end"]
        assert TEXT[start:end] == span["text"]
        assert {covered[at] for at in range(start, end) if TEXT[at] != " "} == {span["label"]}
    found = {at for span in spans for at in range(span["start"], span["end"])}
    assert all(at in found for at, name in covered.items() if name)


@pytest.mark.parametrize("texts", [(TEXT,), (TEXT, OTHER), (LONG,)])
def test_text_classification(texts, answer, reference, reg):
    words = ["--text", texts[0], *(["--context", texts[1]] if len(texts) > 1 else [])]
    value = answer("text-classification", *words)
    scores = reference("text-classification", *texts)[0].logits[0].softmax(dim=0)
    assert (value["activation"], value["truncated"]) == ("softmax", texts[0] == LONG)
    order = scores.argsort(descending=True).tolist()
    assert [item["label"] for item in value["classes"]] == [LABELS[number] for number in order]
    np.testing.assert_allclose([item["score"] for item in value["classes"]], scores[order], **CLOSE)
    shown = reg("run", "acme/text-classification", *words).out
    assert shown.splitlines()[1].split() == [LABELS[order[0]], f"{value['classes'][0]['score']:.4f}"]
    assert ("its end was not read" in shown) is (texts[0] == LONG)


@pytest.mark.parametrize("context", [TEXT, LONG])
def test_question_answering(context, answer, reg, trained):
    """The pair of tokens with the largest sum of logits, over all windows of a context that is too long."""
    source = trained[1]["question-answering"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(source).eval()
    window = {"truncation": "only_second", "max_length": 32, "stride": 8, "padding": False}
    asked = {"return_overflowing_tokens": True, "return_offsets_mapping": True}
    tokens, found = tokenizer(QUESTION, context, **window, **asked), []
    assert (len(tokens["input_ids"]) > 1) is (context == LONG)
    for number, ids in enumerate(tokens["input_ids"]):
        rows = {name: torch.tensor([tokens[name][number]]) for name in tokenizer.model_input_names}
        with torch.inference_mode():
            outputs = model(**rows)
        start, end = (values[0].double() for values in (outputs.start_logits, outputs.end_logits))
        at = [place for place in range(len(ids)) if tokens.sequence_ids(number)[place] == 1]
        begins, ends = (
            dict(zip(at, logits[at].softmax(dim=0).tolist(), strict=True)) for logits in (start, end)
        )
        offsets = tokens["offset_mapping"][number]
        for first, last in ((first, last) for first in at for last in at if first <= last):
            chance = begins[first] * ends[last]
            found.append((float(start[first] + end[last]), offsets[first][0], offsets[last][1], chance))
    _, start, end, chance = max(found)
    words = ("question-answering", "--text", QUESTION, "--context", context)
    given = answer(*words)["answer"]
    score = pytest.approx(chance, rel=1e-3)
    assert given == {"text": context[start:end], "start": start, "end": end, "score": score}
    shown = reg("run", f"acme/{words[0]}", *words[1:]).out.splitlines()
    assert shown[1].split()[-3:] == [str(start), str(end), f"{given['score']:.4f}"]


def test_feature_extraction(answer, reference, reg):
    outputs, tokens, offsets = reference("feature-extraction", TEXT)
    value = answer("feature-extraction", "--text", TEXT)
    (item,), states = value["embeddings"], outputs.last_hidden_state[0].numpy()
    assert value["pooling"] == "mean"
    np.testing.assert_allclose([token["vector"] for token in item["tokens"]], states, **CLOSE)
    np.testing.assert_allclose(item["vector"], states.mean(axis=0), **CLOSE)
    assert [[token["start"], token["end"]] for token in item["tokens"]] == offsets.tolist()
    assert [token["token"] for token in item["tokens"]] == tokens.tokens(0)
    assert reg("run", "acme/feature-extraction", "--text", TEXT).ended(0, "TOKEN", "a text's is their mean")


@pytest.mark.usefixtures("reader_in_process")
def test_embeddings_and_how_alike_they_are(answer, reference, reg, trained, tmp_path):
    """The checkpoint has no configuration of sentence-transformers, so it is pooled by the mean; also as a member."""
    expected = [
        reference("pooling", text)[0].last_hidden_state[0].mean(dim=0).numpy() for text in (TEXT, OTHER)
    ]
    value = answer("pooling", "--text", TEXT, "--text", OTHER)
    assert value["pooling"] == "graph" and set(value["embeddings"][0]) == {"text", "vector", "truncated"}
    np.testing.assert_allclose([item["vector"] for item in value["embeddings"]], expected, **CLOSE)
    one, other = (vector / np.linalg.norm(vector) for vector in expected)
    np.testing.assert_allclose(value["similarity"], [[1, one @ other], [one @ other, 1]], **CLOSE)
    shown = reg("run", "acme/pooling", "--text", TEXT, "--text", OTHER).out
    assert f"text 1  1.0000  {one @ other:.4f}" in " ".join(shown.splitlines()).replace("   ", "  ")
    Registry(trained[0]).write_out("acme/pooling", tmp_path / "out")
    words = ("add", "--member", "encoder=out/model.onnx", "out/tokenizer.json", "--name", "acme/pipe")
    assert reg("--registry", "pipe", *words).status == 0
    words = ("run", "acme/pipe", "--member", "encoder", "--text", TEXT, "--json")
    assert reg("--registry", "pipe", *words).json["embeddings"] == value["embeddings"][:1]


@pytest.mark.parametrize(
    ("task", "words", "message"),
    [
        ("question-answering", ("--text", "who?"), "add it: --context TEXT"),
        ("pooling", ("--text", "a", "--context", "b"), "leave --context out"),
        ("text-classification", ("--text", "a", "--text", "b"), "takes one text at a time"),
        ("token-classification", ("--context", "b"), "one of --self-test, --text, --audio"),
        ("pooling", ("--self-test", "--context", "b"), "--context needs a --text"),
        ("question-answering", ("--text", LONG, "--context", "w20"), "too little room"),
        ("question-answering", ("--text", "", "--context", ""), "the text has no tokens"),
        ("pooling", ("--text", ""), "the text has no tokens"),
    ],
)
def test_texts_that_do_not_fit_the_task(task, words, message, reg, answer):
    assert reg("run", f"acme/{task}", *words).ended(2, message)


@pytest.mark.more
def test_text_generation(reg, answer, make_checkpoint, tmp_path, trained):
    """The text that the same checkpoint generates greedily in PyTorch."""
    source = tmp_path / "llama"
    write_llama(source)
    model = transformers.LlamaForCausalLM.from_pretrained(source).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(source)
    for file in make_checkpoint("distilbert").glob("tokenizer*"):
        shutil.copy(file, source)
    step = {"name": "fp32", "pass": "ModelBuilder", "params": {"precision": "fp32"}}
    value = {"task": "causal-lm", "steps": [step], "outputs": [{"step": "fp32"}]}
    registry = Registry(trained[0])
    with registry.workspace() as workspace:
        plan = plan_export(RecipeFile.from_json(value, "recipe"), str(source), "acme/text-generation")
        assert registry.add(execute(plan, workspace)).manifest.task == "text-generation"
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    prompt = tokenizer("w10 w11 w12", return_tensors="pt", padding=False)["input_ids"]
    generated = model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)[
        0, prompt.shape[1] :
    ]
    given = answer("text-generation", "--text", "w10 w11 w12", "--max-tokens", "8")["completion"]
    assert (given["tokens"], given["finish"]) == (8, "length")
    expected = tokenizer.decode(generated, skip_special_tokens=True).split()
    assert len(set(expected)) > 1 and given["text"].split() == expected
    assert reg("run", "acme/text-generation", "--self-test").ended(3, "golden vectors", "own: --text")
