"""An evaluation of each task through an export; the figures are those of an independent run of the published files."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from support.docs.nets import write_llama, write_mlp
from support.graphs import graph
from support.sampling import sampled
from support.tasks.seq2seq import save
from support.tasks.table import ROWS as ARCHITECTURES
from support.tasks.table import save as save_row

from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.evaluation.evaluate import SourceEvaluation, plan_evaluation
from onnxreg.converters.evaluation.evaluators import EVALUATORS
from onnxreg.converters.evaluation.rows import LabelledRows
from onnxreg.converters.evaluation.suite import load
from onnxreg.converters.request import ExportRequest
from onnxreg.converters.tasks.task import ExportSubject, Part
from onnxreg.converters.tasks.task_catalog import TASKS, task_recipe
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError
from onnxreg.schema.inputs.recipe_file import EvaluationRequest, RecipeFile
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
from onnxreg.schema.manifest.manifest import Source

Make = Callable[..., Path]
INT8 = [
    {"name": "fp32", "pass": "OnnxConversion"},
    {"name": "int8", "pass": "OnnxDynamicQuantization", "input": "fp32"},
]
OUTPUTS = [{"step": "fp32", "path": "model.onnx"}, {"step": "int8", "path": "model_int8.onnx"}]


LARGE = [("SigLIP", "vision"), ("CLAP", "audio")]
Export = Callable[..., Draft]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> StepCache:
    """The steps that exports of one checkpoint have in common."""
    return StepCache(tmp_path_factory.mktemp("steps"))


@pytest.fixture
def export(steps: StepCache, tmp_path: Path) -> Export:
    """Export a checkpoint or graph with an evaluation; a suite is its rows, or a file."""

    def run(
        source: Path, task: str, suite: Any, passes: Any = INT8, outputs: Any = OUTPUTS, **more: Any
    ) -> Draft:
        workspace = tmp_path / f"w{len(list(tmp_path.iterdir()))}"
        workspace.mkdir()
        if isinstance(suite, list):
            suite = write(tmp_path / "suite.jsonl", suite)
        value = {"task": task, "options": more.pop("options", {}), "steps": passes, "outputs": outputs}
        recipe = RecipeFile.from_json({**value, "evaluation": {"suite": str(suite), **more}})
        return execute(plan_export(recipe, str(source), "acme/x"), workspace, steps)

    return run


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def figures(draft: Draft, artifact: str = "model_int8.onnx") -> dict[str, dict[str, Any]]:
    certificate = json.loads((draft.root / f"certificates/{artifact}.json").read_bytes())
    return {record["metric"]: record for record in certificate["metrics"]}


def words(count: int, seed: int = 0, length: int = 6) -> list[str]:
    draw = np.random.RandomState(seed)
    rows = draw.choice(40, size=(count, length)) + 10
    rows[:, 0] = np.arange(count) % 50 + 10
    rows[:, 1] = np.arange(count) // 50 + 10
    return [" ".join(f"w{number}" for number in row) for row in rows]


def exact_session(path: Path) -> onnxruntime.InferenceSession:
    """ONNX Runtime alone; x86 processors without VNNI do not saturate 8-bit products (docs/golden.md)."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def onnx_outputs(draft: Draft, path: str, texts: Sequence[str], pairs: Any = None) -> list[dict[str, Any]]:
    """Run a published file on each text by the published tokenizer, with ONNX Runtime alone."""
    import tokenizers

    session = exact_session(draft.root / path)
    tokenizer = tokenizers.Tokenizer.from_file(str(draft.root / "tokenizer.json"))
    results = []
    for number, text in enumerate(texts):
        encoded = tokenizer.encode(text, None if pairs is None else pairs[number])
        values = {
            "input_ids": encoded.ids,
            "attention_mask": encoded.attention_mask,
            "token_type_ids": encoded.type_ids,
        }
        feed = {item.name: np.array([values[item.name]], dtype=np.int64) for item in session.get_inputs()}
        outputs = session.run(None, feed)
        results.append({item.name: array for item, array in zip(session.get_outputs(), outputs, strict=True)})
    return results


@pytest.fixture(scope="module")
def classifier(make_checkpoint: Make) -> Path:
    return make_checkpoint("bert", "SequenceClassification")


@pytest.mark.parametrize("paired", sampled([True, False], 2))
def test_text_classification_of_texts_and_pairs(export, classifier, paired):
    labels = json.loads((classifier / "config.json").read_text())["id2label"]
    texts, pairs = words(300), words(300, seed=1) if paired else None
    rows = [{"text": text, "label": labels[str(number % 2)]} for number, text in enumerate(texts)]
    for row, pair in zip(rows, pairs or (), strict=bool(pairs)):
        row["text_pair"] = pair
    draft = export(classifier, "text-classification", rows)
    got = figures(draft)
    for path, key in (("model.onnx", "parent"), ("model_int8.onnx", "value")):
        predicted = [int(run["logits"].argmax()) for run in onnx_outputs(draft, path, texts, pairs)]
        accuracy = np.mean([number % 2 == label for number, label in enumerate(predicted)])
        assert got["accuracy"][key] == pytest.approx(accuracy)
    assert got["accuracy"]["samples"] == got["macro_f1"]["samples"] == 300


def test_question_answering_over_windows(export, make_checkpoint):
    source, contexts = make_checkpoint("bert", "QuestionAnswering"), words(220, length=60)
    rows = [
        {"question": f"w{10 + n % 40} w11", "context": c, "answers": [" ".join(c.split()[:2])]}
        for n, c in enumerate(contexts)
    ]
    short = {"options": {"max_seq_length": 32}}
    got = figures(export(source, "question-answering", rows, **short))
    assert got["exact_match"]["samples"] == got["answer_f1"]["samples"] == 220
    assert 0 <= got["exact_match"]["parent"] <= got["answer_f1"]["parent"] <= 1
    long = [{"question": "w10 w11 " * 40, "context": "w12", "answers": []}]
    with pytest.raises(InputError, match="too little room for its context in 32"):
        export(source, "question-answering", long, **short)


@pytest.mark.more
def test_an_answer_within_one_window_is_the_best_pair_of_logits(export, make_checkpoint):
    source = make_checkpoint("bert", "QuestionAnswering")
    contexts = words(205, length=8)
    rows = [{"question": "w10 w11", "context": c, "answers": [c.split()[3]]} for c in contexts]
    draft = export(source, "question-answering", rows, item_scores=True)
    runs, exact = onnx_outputs(draft, "model_int8.onnx", ["w10 w11"] * 205, contexts), 0
    for row, run in zip(rows, runs, strict=True):
        start, end = run["start_logits"][0], run["end_logits"][0]
        tokens = range(len(start) - 8, len(start))  # this tokenizer adds no special tokens
        score, first, last = max((start[a] + end[b], a, b) for a in tokens for b in tokens if b >= a)
        answer = " ".join(str(row["context"]).split()[first - tokens[0] : last - tokens[0] + 1])
        exact += (answer == row["answers"][0]) and score >= start[0] + end[0]
    assert figures(draft)["exact_match"]["value"] == pytest.approx(exact / 205)


@pytest.mark.more
def test_a_decoder_of_fixed_length_classifies_as_the_one_it_was_made_of(export, make_checkpoint):
    source = make_checkpoint("llama", "SequenceClassification")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "pad_token_id": 7}))
    rows = [{"text": text, "label": config["id2label"]["0"]} for text in words(205)]
    steps, outputs = [INT8[0], fixed_to(12, "fp32")], [{"step": "fixed", "path": "fixed.onnx"}]
    draft = export(source, "text-classification", rows, steps, outputs, artifacts=["fixed.onnx"])
    got = figures(draft, "fixed.onnx")["accuracy"]
    assert 0 < got["value"] == got["parent"] < 1


def fixed_to(length: int, step: str) -> dict[str, Any]:
    params = {"dim_param": ["batch", "sequence"], "dim_value": [1, length]}
    return {"name": "fixed", "pass": "DynamicToFixedShape", "input": step, "params": params}


@pytest.mark.more
def test_an_item_longer_than_a_fixed_graph_is_an_error(export, make_checkpoint):
    suite, steps = [{"text": text} for text in words(5, length=12)], [*INT8, fixed_to(8, "int8")]
    message = r"fixed\.onnx takes 8 tokens, an item of the evaluation suite has 12"
    with pytest.raises(ConversionError, match=message):
        export(make_checkpoint("bert", ""), "pooling", suite, steps, [{"step": "fixed"}])


def test_rows_of_arrays(export, tmp_path):
    write_mlp(tmp_path / "mlp.onnx")
    rows = np.random.default_rng(1).normal(size=(240, 64)).astype(np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "mlp.onnx")
    right = session.run(None, {"x": rows})[0].argmax(axis=1)
    np.savez(tmp_path / "suite.npz", x=rows, labels=right, groups=np.arange(240) // 2)
    metrics = {"metrics": [{"metric": "top_1"}, {"metric": "top_5"}]}
    source, suite = tmp_path / "mlp.onnx", tmp_path / "suite.npz"
    draft = export(source, "onnx", suite, INT8_OF_GRAPH, [{"step": "int8"}], **metrics)
    got = figures(draft, "int8.onnx")
    assert (got["top_1"]["parent"], got["top_1"]["samples"], got["top_1"]["groups"]) == (1.0, 240, 120)
    quantized = exact_session(draft.root / "int8.onnx")
    predicted = [quantized.run(None, {"x": row[None]})[0].argmax() for row in rows]
    assert got["top_1"]["value"] == pytest.approx(np.mean(predicted == right))
    assert got["top_1"]["value"] <= got["top_5"]["value"]


@pytest.mark.more
@pytest.mark.parametrize(
    "builder", ["ModelBuilder", pytest.param("TransformersExport", marks=pytest.mark.large)]
)
def test_text_generation(export, make_checkpoint, tmp_path, builder):
    import torch
    from transformers import AutoTokenizer, LlamaForCausalLM

    source = tmp_path / "llama"
    write_llama(source)
    for file in make_checkpoint("distilbert").glob("tokenizer*"):
        shutil.copy(file, source)
    rows = [{"prompt": "w10 w11 ", "completion": text} for text in words(110)]
    steps = [{"name": "small", "pass": "ModelBuilder", "params": {"precision": "int4"}}]
    if builder == "TransformersExport":
        steps = [{"name": "fp32", "pass": builder}, {**INT8[1], "name": "small"}]
    draft = export(source, "text-generation", rows, steps, [{"step": "small", "path": "model.onnx"}])
    got = figures(draft, "model.onnx")
    tokenizer, model = AutoTokenizer.from_pretrained(source), LlamaForCausalLM.from_pretrained(source).eval()
    nats, tokens = 0.0, 0
    for row in rows:
        text = row["prompt"] + row["completion"]
        encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
        with torch.no_grad():
            chances = model(encoded["input_ids"]).logits[0].double().log_softmax(dim=1)
        for at, (start, end) in enumerate(encoded["offset_mapping"][0].tolist()):
            if at and end > max(start, len(row["prompt"])):
                nats -= float(chances[at - 1, encoded["input_ids"][0, at]])
                tokens += 1
    assert got["perplexity"]["parent"] == pytest.approx(np.exp(nats / tokens), rel=1e-4)
    assert got["perplexity"]["direction"] == "lower" and got["perplexity"]["samples"] == 110


W10 = {"text": "w10"}
BAD: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "suite.jsonl has no items": ([], {}),
    "line 1 is malformed": ([{"question": "?", "context": "c", "answers": []}], {}),
    "line 2: the same item was used before, at line 1": ([W10, W10], {}),
    "its id was used before": ([{**W10, "id": 1}, {"text": "w11", "id": 1}], {}),
    "`group` is missing": ([{**W10, "group": 1}, {"text": "w11"}], {}),
    "is not one of pooling": ([W10], {"metrics": [{"metric": "accuracy"}]}),
    "names a metric twice": ([W10], {"metrics": [{"metric": "mean_cosine"}] * 2}),
    "no metric is called 'bleu'": ([W10], {"metrics": [{"metric": "bleu"}]}),
    "lacks what the metric spearman": ([W10], {"metrics": [{"metric": "spearman"}]}),
    "both text_pair and score": ([{**W10, "text_pair": "w11"}], {}),
    "line 1 is malformed at score": ([{**W10, "text_pair": "b", "score": "high"}], {}),
    "names x.onnx, which is not an output": ([W10], {"artifacts": ["x.onnx"]}),
    "no setting 'a'": ([W10], {"metrics": [{"metric": "mean_cosine", "settings": {"a": 1}}]}),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused(export, make_checkpoint, message):
    rows, evaluation = BAD[message]
    with pytest.raises(InputError, match=message):
        export(make_checkpoint("bert", ""), "pooling", rows, **evaluation)


def test_a_label_that_the_model_lacks_and_a_plan_that_judges_nothing_are_refused(
    export, classifier, make_checkpoint, tmp_path
):
    with pytest.raises(InputError, match="does not have: 'HAPPY'"):
        export(classifier, "text-classification", [{**W10, "label": "HAPPY"}])
    np.savez(tmp_path / "bad.npz", x=np.eye(2))
    options = {"eval_suite": tmp_path / "bad.npz", "quantize": True}
    with pytest.raises(InputError, match=r"bad\.npz"):  # before the checkpoint is loaded
        ExportRequest(str(classifier), "acme/m", task="text-classification", options=options).plan()
    with pytest.raises(InputError, match="judges nothing"):
        export(make_checkpoint("bert", ""), "pooling", [W10], INT8[:1], [{"step": "fp32"}])
    label = json.loads((classifier / "config.json").read_text())["id2label"]["0"]
    items = (json.dumps({"text": text, "label": label}) for text in words(220))
    (tmp_path / "bad.jsonl").write_text("\n".join(items))
    options["eval_suite"] = tmp_path / "bad.jsonl"
    request = ExportRequest(str(classifier), "acme/m", task="text-classification", options=options)
    (warning,) = request.plan().warnings()
    assert "bad.jsonl" in warning and label in warning  # and not the model


INT8_OF_GRAPH = [{"name": "int8", "pass": "OnnxDynamicQuantization"}]
ORIGINAL = [{"name": "original", "pass": "Original"}, {**INT8_OF_GRAPH[0], "input": "original"}]
BOTH = [{"step": "original", "path": "model.onnx"}, {"step": "int8", "path": "model_int8.onnx"}]


def test_a_suite_that_is_missing_or_of_arrays_is_refused_at_once(export, tmp_path):
    write_mlp(tmp_path / "mlp.onnx")
    (tmp_path / "suite.txt").write_text("{}")
    np.savez(tmp_path / "wide.npz", x=np.eye(2, 65, dtype=np.float32))
    np.savez(tmp_path / "twice.npz", x=np.ones((2, 64), np.float32), labels=[0, 1])
    for suite, family, message in (
        ("none.npz", NotFoundError, "no evaluation suite"),
        ("suite.txt", InputError, r"suite\.txt"),
        ("wide.npz", InputError, "the evaluation suite does not fit the model"),
        ("twice.npz", InputError, "row 2: the same row was used before, at row 1"),
    ):
        steps, outputs = (ORIGINAL, BOTH) if suite == "wide.npz" else (INT8_OF_GRAPH, [])
        with pytest.raises(family, match=message):
            export(tmp_path / "mlp.onnx", "onnx", tmp_path / suite, steps, outputs)


def least_cosine(own: dict[str, Any], parent: dict[str, Any]) -> float:
    pairs = [(own[name].ravel().astype(np.float64), parent[name].ravel()) for name in parent]
    return min(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in pairs)


@pytest.mark.parametrize("shape", ["n, 1", "n"])
def test_one_number_for_each_row_is_not_certified_by_its_sign(export, tmp_path, shape):
    """INT8 of a regression may be wrong by any factor: the cosine of two positive numbers is 1."""
    last = {"n, 1": "y = Identity (h)", "n": "y = Squeeze (h, axis)"}
    sides, weights = ("float[n, 64] x", f"float[{shape}] y"), {"w": (64, 1), "axis": np.array([1])}
    model = graph(f"h = MatMul (x, w) {last[shape]}", *sides, opset=17, **weights)
    onnx.save(model, tmp_path / "one.onnx")
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(1).normal(size=(220, 64)).astype(np.float32))
    with pytest.raises(InputError, match="output y is one number"):
        export(tmp_path / "one.onnx", "onnx", tmp_path / "rows.npz", ORIGINAL, BOTH)


def test_rows_without_labels_are_judged_by_their_cosine(export, tmp_path):
    write_mlp(tmp_path / "mlp.onnx")
    rows = np.random.default_rng(0).standard_normal((220, 64)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=rows)
    draft = export(tmp_path / "mlp.onnx", "onnx", tmp_path / "rows.npz", ORIGINAL, BOTH)
    sessions = [exact_session(draft.root / name) for name in ("model_int8.onnx", "model.onnx")]
    names = [item.name for item in sessions[1].get_outputs()]
    cosines = []
    for row in rows:
        sides = (session.run(None, {"x": row[None]}) for session in sessions)
        cosines.append(least_cosine(*(dict(zip(names, side, strict=True)) for side in sides)))
    assert figures(draft)["output_cosine"]["value"] == pytest.approx(np.mean(cosines), abs=1e-6)


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "other"),
    [("CLIP", "vision"), *(pytest.param(*row, marks=pytest.mark.large) for row in LARGE)],
)
def test_towers_are_judged_by_both_vectors_of_a_pair(export, tmp_path, name, other):
    save_row(next(row for rows in ARCHITECTURES.values() for row in rows if row.name == name), tmp_path / "m")
    recipe = task_recipe(
        f"zero-shot-{other.replace('vision', 'image')}-classification", quantize=True
    ).to_json()
    task = TASKS[recipe["task"]]()
    first = task.load(task.find(str(tmp_path / "m")), "m", tmp_path).part.feeds[0]
    rows = {key: np.concatenate([array[:1] * scale for scale in range(1, 9)]) for key, array in first.items()}
    rows |= {key: rows[key] // rows[key].max(1, keepdims=True) for key in rows if "mask" in key}
    rows["input_ids"] %= 30
    np.savez(tmp_path / "pairs.npz", **rows)
    draft = export(tmp_path / "m", recipe["task"], tmp_path / "pairs.npz", recipe["steps"], recipe["outputs"])
    towers = ["text_model", f"{other}_model"]
    np.savez(tmp_path / "wrong.npz", **{**rows, "input_ids": rows["input_ids"][..., None]})
    with pytest.raises(InputError, match="suite does not fit the model"):
        export(tmp_path / "m", recipe["task"], tmp_path / "wrong.npz", recipe["steps"], recipe["outputs"])

    def vectors(*files: str) -> list[dict[str, Any]]:
        found = []
        for session in (exact_session(draft.root / f"{file}.onnx") for file in files):
            names = [item.name for item in session.get_outputs() if "logits" not in item.name]
            feeds = [
                {item.name: rows[item.name][at : at + 1] for item in session.get_inputs()} for at in range(8)
            ]
            found += [[session.run([name], feed)[0] for feed in feeds] for name in names]
        return [dict(enumerate(row)) for row in zip(*found, strict=True)]

    full = vectors(*towers)
    for file, graphs in {**dict.fromkeys(towers, towers), "model": ["model"]}.items():
        small = vectors(*(f"{graph}_int8" for graph in graphs))
        cosines = [least_cosine(*sides) for sides in zip(small, full, strict=True)]
        record = figures(draft, f"{file}_int8.onnx")["output_cosine"]
        assert record["value"] == pytest.approx(np.mean(cosines), abs=1e-6) and len(small[0]) == 2
        assert record["parent"] == pytest.approx(1) and len(record["settings"]["graphs"]) == len(graphs)


def test_every_task_has_a_suite():
    assert {task for one in EVALUATORS for task in one.tasks} >= TASKS.keys()


ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def test_groups_of_arrays_are_any_integers(tmp_path):
    np.savez(tmp_path / "s.npz", x=ROWS, labels=[0, 1, 0, 1], groups=[7, 10**15, 7, -3])
    suite = load(LabelledRows, tmp_path / "s.npz")
    assert suite.groups == (0, 1, 0, 2)
    assert sum(len(suite.half(name, 0).items) for name in ("choose", "confirm")) == 4


@pytest.mark.parametrize("groups", [["a", "b", "a", "b"], [0.1, 0.2, 1.0, 2.0], [[0, 1]] * 4], ids=str)
def test_groups_of_arrays_that_are_no_integers_are_refused(tmp_path, groups):
    np.savez(tmp_path / "s.npz", x=ROWS, labels=[0, 1, 0, 1], groups=groups)
    with pytest.raises(InputError, match="groups must be one integer for each row"):
        load(LabelledRows, tmp_path / "s.npz")


ALIKE: list[tuple[str, Any, Any]] = [
    ("token-classification", {"text": "Ada  in Rome", "gold_spans": [], "id": "a"},
     {"text": "Ada in Rome\n", "gold_spans": [{"start": 0, "end": 3, "label": "NAME"}]}),
    ("text-classification", {"text": "caf\u00e9", "label": "x"}, {"text": "cafe\u0301", "label": "y"}),
    ("question-answering", *({"question": "q", "context": "c", "answers": answers} for answers in (["a", "b"], ["b", "a"]))),
    ("pooling", {"text": "a", "text_pair": "b", "score": 1}, {"text": "b", "text_pair": "a", "score": 2}),
    ("pooling", *({"text": "q", "documents": [{"text": one, "relevance": 1}, {"text": other, "relevance": 0}]} for one, other in ("ab", "ba"))),
    ("text-generation", {"prompt": "a ", "completion": "b"}, {"completion": "a b"}),
]  # fmt: skip


def identities(tmp_path: Path, task: str, *rows: Any) -> set[Any]:
    evaluator = next(kind for kind in EVALUATORS if task in kind.tasks)
    return set(load(evaluator, write(tmp_path / "suite.jsonl", rows)).identities)


@pytest.mark.parametrize(("task", "one", "other"), ALIKE, ids=[row[0] for row in ALIKE])
def test_items_that_a_model_reads_alike_are_identical_whatever_the_right_answer_is(
    tmp_path, task, one, other
):
    assert len(identities(tmp_path, task, one, other)) == 1


def test_items_of_other_content_are_not_identical(tmp_path):
    rows = [{"text": a, "text_pair": b, "label": "x"} for a, b in (("a", "b"), ("b", "a"), ("a", "c"))]
    assert len(identities(tmp_path, "text-classification", *rows)) == 3


def test_only_graphs_in_full_precision_are_the_parent_of_graphs_that_generate_together(tmp_path):
    (tmp_path / "suite.json").write_text("[]")
    request = EvaluationRequest.from_json({"suite": str(tmp_path / "suite.json")})
    plan = plan_evaluation(request, "text2text-generation", tmp_path, ())
    parts = {"encoder": Part(None), "decoder_merged": Part(None)}
    evaluation = SourceEvaluation(plan, ExportSubject(Source(id="acme/x"), parts))
    members = [{"name": name, "artifacts": [f"float32/{name}", f"int8/{name}"]} for name in parts]
    graphs = [DraftArtifact("onnx", one, f"{one}/{name}") for name in parts for one in ("float32", "int8")]
    fields = {"model_family": {"members": members}}
    evaluation.join(Draft("acme/x", tmp_path, tuple(graphs), fields=fields))
    with pytest.raises(InputError, match="compares with graphs in full precision"):
        evaluation.join(Draft("acme/x", tmp_path, tuple(graphs[1::2]), fields=fields))


@pytest.mark.large
def test_each_file_of_a_member_generates_with_the_other_graphs_of_its_precision(export, tmp_path):
    source = save("t5", tmp_path / "t5", 1)
    recipe = task_recipe("text2text-generation", quantize=True, source=str(source)).to_json()
    first = next(output for output in recipe["outputs"] if output["path"] == "encoder_model_int8.onnx")
    (start,) = (step["input"] for step in recipe["steps"] if step["name"] == first["step"])
    other = {"name": "other", "pass": "OrtDynamicQuantization", "input": start}
    second = {**first, "step": "other", "path": "encoder_model_other.onnx"}
    rows = [{"text": f"word{number} another", "target": "word1"} for number in range(3)]
    draft = export(
        source,
        "text2text-generation",
        rows,
        [*recipe["steps"], other],
        [*recipe["outputs"], second],
        artifacts=[first["path"], second["path"]],
    )
    decoder = str(Digest.of((draft.root / "decoder_model_merged_int8.onnx").read_bytes()))
    for path in (first["path"], second["path"]):
        encoder = str(Digest.of((draft.root / path).read_bytes()))
        graphs = figures(draft, path)["chrf"]["settings"]["graphs"]
        assert graphs == {"encoder": encoder, "decoder_merged": decoder}
