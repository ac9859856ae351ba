"""`reg run --text` for every task, against the same checkpoint run by transformers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.profiles.profile_catalog import task_recipe
from onnxreg.registry import Registry

Reg = Callable[..., Any]
Make = Callable[..., Path]
TASKS = {
    "token-classification": "TokenClassification",
    "text-classification": "SequenceClassification",
    "question-answering": "QuestionAnswering",
    "feature-extraction": "",
    "pooling": "",
}
TEXT, OTHER = "the patient was seen by Dr w20 on w21 .", "w30 w31 the w32 ,"
LONG = " ".join(f"w{number % 50}" for number in range(60))
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def models(make_checkpoint: Make, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    """A registry with a tiny model of each task, and the checkpoints."""
    root = tmp_path_factory.mktemp("texts")
    registry, checkpoints = Registry(root / "home"), {}
    for task, head in TASKS.items():
        checkpoints[task] = make_checkpoint("bert", task=head)
        with registry.workspace() as workspace:
            plan = plan_export(task_recipe(task, max_seq_length=32), str(checkpoints[task]), f"acme/{task}")
            registry.add(execute(plan, workspace))
    return registry.store.root, checkpoints


@pytest.fixture(autouse=True)
def home(models: tuple[Path, dict[str, Path]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_HOME", str(models[0]))


@pytest.fixture
def answer(reg: Reg) -> Callable[..., dict[str, Any]]:
    """What `reg run --json` prints, without the identity of the artifact."""

    def run(task: str, *words: str) -> dict[str, Any]:
        done = reg("run", f"acme/{task}", *words, "--json")
        assert done.status == 0, done.err
        value: dict[str, Any] = done.json
        assert [value.pop(key) for key in ("name", "version", "path")] == [
            f"acme/{task}",
            "0.1.0",
            "model.onnx",
        ]
        assert value.pop("runtime")
        return value

    return run


@pytest.fixture
def reference(models: tuple[Path, dict[str, Path]]) -> Callable[..., Any]:
    """The outputs of a checkpoint in PyTorch, and the tokens that transformers makes."""

    def run(task: str, *texts: str, **options: Any) -> Any:
        source = models[1][task]
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        options = {"truncation": True, "max_length": 32, "padding": False, **options}
        tokens = tokenizer(*texts, return_tensors="pt", return_offsets_mapping=True, **options)
        offsets = tokens.pop("offset_mapping")[0].numpy()
        model = getattr(transformers, f"AutoModelFor{TASKS[task]}" if TASKS[task] else "AutoModel")
        with torch.inference_mode():
            return model.from_pretrained(source).eval()(**tokens), tokens, offsets

    return run


def test_token_classification(answer: Any, reference: Any) -> None:
    outputs, _, offsets = reference("token-classification", TEXT)
    tags = outputs.logits[0].argmax(dim=1).tolist()
    names = ["", "NAME", "NAME", "DATE", "DATE"]
    covered = {
        at: names[tag] for tag, (start, end) in zip(tags, offsets, strict=True) for at in range(start, end)
    }
    value = answer("token-classification", "--text", TEXT)
    assert list(value) == ["spans"] and value["spans"]
    for span in value["spans"]:
        assert TEXT[span["start"] : span["end"]] == span["text"]
        assert {covered[at] for at in range(span["start"], span["end"]) if TEXT[at] != " "} == {span["label"]}
    spans = [range(span["start"], span["end"]) for span in value["spans"]]
    assert all(not covered.get(at) or any(at in span for span in spans) for at in range(len(TEXT)))


@pytest.mark.parametrize("texts", [(TEXT,), (TEXT, OTHER), (LONG,)])
def test_text_classification(texts: tuple[str, ...], answer: Any, reference: Any, reg: Reg) -> None:
    words = ["--text", texts[0], *(["--context", texts[1]] if len(texts) > 1 else [])]
    value = answer("text-classification", *words)
    scores = reference("text-classification", *texts)[0].logits[0].softmax(dim=0)
    assert list(value) == ["classes", "activation", "truncated"]
    assert (value["activation"], value["truncated"]) == ("softmax", texts[0] == LONG)
    order = scores.argsort(descending=True).tolist()
    names = ["O", "B-NAME", "I-NAME", "B-DATE", "I-DATE"]
    assert [item["label"] for item in value["classes"]] == [names[number] for number in order]
    np.testing.assert_allclose([item["score"] for item in value["classes"]], scores[order], **CLOSE)
    shown = reg("run", "acme/text-classification", *words).out
    assert shown.splitlines()[1].split() == [names[order[0]], f"{value['classes'][0]['score']:.4f}"]
    assert ("its end was not read" in shown) is (texts[0] == LONG)


def test_the_scores_are_those_of_the_pipeline_of_transformers(
    answer: Any, models: tuple[Path, dict[str, Path]]
) -> None:
    source = models[1]["text-classification"]
    pipeline = transformers.pipeline("text-classification", model=str(source), top_k=None)
    expected = {item["label"]: item["score"] for item in np.ravel(pipeline([TEXT]))}
    given = {
        item["label"]: item["score"] for item in answer("text-classification", "--text", TEXT)["classes"]
    }
    assert given.keys() == expected.keys()
    for label, score in expected.items():
        assert given[label] == pytest.approx(score, rel=1e-3)


QUESTION = "w20 w21 ?"


@pytest.mark.parametrize("context", [TEXT, LONG])
def test_question_answering(
    context: str, answer: Any, reg: Reg, models: tuple[Path, dict[str, Path]]
) -> None:
    """The pair of tokens with the largest sum of logits, over all windows of a context that is too long."""
    source = models[1]["question-answering"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(source).eval()
    tokens = tokenizer(
        QUESTION,
        context,
        truncation="only_second",
        max_length=32,
        stride=8,
        padding=False,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    assert (len(tokens["input_ids"]) > 1) is (context == LONG)
    found = []
    for number, ids in enumerate(tokens["input_ids"]):
        rows = {name: torch.tensor([tokens[name][number]]) for name in tokenizer.model_input_names}
        with torch.inference_mode():
            outputs = model(**rows)
        start, end = (values[0].double() for values in (outputs.start_logits, outputs.end_logits))
        of_context = [at for at in range(len(ids)) if tokens.sequence_ids(number)[at] == 1]
        chances = [logits[of_context].softmax(dim=0).tolist() for logits in (start, end)]
        found += [
            (
                float(start[first] + end[last]),
                tokens["offset_mapping"][number][first][0],
                tokens["offset_mapping"][number][last][1],
                chances[0][of_context.index(first)] * chances[1][of_context.index(last)],
            )
            for first in of_context
            for last in of_context
            if first <= last
        ]
    _, start, end, chance = max(found)
    words = ("question-answering", "--text", QUESTION, "--context", context)
    value = answer(*words)
    assert list(value) == ["answer"]
    assert value["answer"] == {
        "text": context[start:end],
        "start": start,
        "end": end,
        "score": pytest.approx(chance, rel=1e-3),
    }
    shown = reg("run", f"acme/{words[0]}", *words[1:]).out.splitlines()
    assert shown[0].split() == ["ANSWER", "START", "END", "SCORE"]
    assert shown[1].split()[-3:] == [str(start), str(end), f"{value['answer']['score']:.4f}"]


def test_feature_extraction(answer: Any, reference: Any, reg: Reg) -> None:
    outputs, tokens, offsets = reference("feature-extraction", TEXT)
    value = answer("feature-extraction", "--text", TEXT)
    assert list(value) == ["embeddings", "pooling", "similarity"] and value["pooling"] == "mean"
    (item,) = value["embeddings"]
    assert list(item) == ["text", "vector", "truncated", "tokens"]
    states = outputs.last_hidden_state[0].numpy()
    np.testing.assert_allclose([token["vector"] for token in item["tokens"]], states, **CLOSE)
    np.testing.assert_allclose(item["vector"], states.mean(axis=0), **CLOSE)
    assert [[token["start"], token["end"]] for token in item["tokens"]] == offsets.tolist()
    assert [token["token"] for token in item["tokens"]] == tokens.tokens(0)
    shown = reg("run", "acme/feature-extraction", "--text", TEXT).out
    assert "TOKEN" in shown and "a text's is their mean" in shown


def test_embeddings_and_how_alike_they_are(answer: Any, reference: Any, reg: Reg) -> None:
    """The checkpoint has no configuration of sentence-transformers, so it is pooled by the mean."""
    expected = [
        reference("pooling", text)[0].last_hidden_state[0].mean(dim=0).numpy() for text in (TEXT, OTHER)
    ]
    value = answer("pooling", "--text", TEXT, "--text", OTHER)
    assert (
        value["pooling"] == "graph"
        and [list(item) for item in value["embeddings"]] == [["text", "vector", "truncated"]] * 2
    )
    np.testing.assert_allclose([item["vector"] for item in value["embeddings"]], expected, **CLOSE)
    one, other = (vector / np.linalg.norm(vector) for vector in expected)
    np.testing.assert_allclose(value["similarity"], [[1, one @ other], [one @ other, 1]], **CLOSE)
    shown = reg("run", "acme/pooling", "--text", TEXT, "--text", OTHER).out
    assert f"text 1  1.0000  {one @ other:.4f}" in " ".join(shown.splitlines()).replace("   ", "  ")


@pytest.mark.parametrize(
    ("task", "words", "message"),
    [
        ("question-answering", ("--text", "who?"), "add it: --context TEXT"),
        ("pooling", ("--text", "a", "--context", "b"), "leave --context out"),
        ("text-classification", ("--text", "a", "--text", "b"), "takes one text at a time"),
        ("token-classification", ("--context", "b"), "one of --self-test, --text and --input"),
        ("pooling", ("--self-test", "--context", "b"), "--context needs a --text"),
        ("question-answering", ("--text", LONG, "--context", "w20"), "too little room"),
        ("question-answering", ("--text", "", "--context", ""), "the text has no tokens"),
        ("pooling", ("--text", ""), "the text has no tokens"),
    ],
)
def test_texts_that_do_not_fit_the_task(task: str, words: tuple[str, ...], message: str, reg: Reg) -> None:
    done = reg("run", f"acme/{task}", *words)
    assert done.status == 2 and message in done.err and "Traceback" not in done.err


def test_a_member_of_a_pipeline_reads_texts(
    reg: Reg, answer: Any, models: tuple[Path, dict[str, Path]], tmp_path: Path
) -> None:
    """The vectors of the member are those of the model alone."""
    Registry(models[0]).write_out("acme/pooling", tmp_path / "out")
    (tmp_path / "out" / "model.onnx").rename("encoder.onnx")
    (tmp_path / "out" / "tokenizer.json").rename("tokenizer.json")
    member = ("--member", "encoder=encoder.onnx")
    added = reg("--registry", "pipe", "add", *member, "tokenizer.json", "--name", "acme/pipe")
    assert added.status == 0, added.err
    words = ("run", "acme/pipe", "--member", "encoder", "--text", TEXT, "--json")
    (item,) = reg("--registry", "pipe", *words).json["embeddings"]
    assert item == answer("pooling", "--text", TEXT)["embeddings"][0]


@pytest.mark.more
def test_text_generation(answer: Any, make_checkpoint: Make, tmp_path: Path, models: Any) -> None:
    """The text that the same checkpoint generates greedily in PyTorch."""
    import shutil

    from support.docs.nets import write_llama

    from onnxreg.schema.inputs.recipe_file import RecipeFile

    source = tmp_path / "llama"
    write_llama(source)
    model = transformers.LlamaForCausalLM.from_pretrained(source).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(source)
    for file in make_checkpoint("distilbert").glob("tokenizer*"):
        shutil.copy(file, source)
    value = {
        "task": "causal-lm",
        "steps": [{"name": "fp32", "pass": "ModelBuilder", "params": {"precision": "fp32"}}],
        "outputs": [{"step": "fp32"}],
    }
    registry = Registry(models[0])
    with registry.workspace() as workspace:
        plan = plan_export(RecipeFile.from_json(value, "recipe"), str(source), "acme/text-generation")
        assert registry.add(execute(plan, workspace)).manifest.task == "text-generation"
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    prompt = tokenizer("w10 w11 w12", return_tensors="pt", padding=False)["input_ids"]
    generated = model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)[
        0, prompt.shape[1] :
    ]
    value = answer("text-generation", "--text", "w10 w11 w12", "--max-tokens", "8")
    assert list(value) == ["completion"]
    assert value["completion"]["tokens"] == 8 and value["completion"]["finish"] == "length"
    expected = tokenizer.decode(generated, skip_special_tokens=True).split()
    assert len(set(expected)) > 1 and value["completion"]["text"].split() == expected
