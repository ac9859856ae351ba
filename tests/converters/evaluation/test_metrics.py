"""Each metric against the same figure computed another way."""

import math
import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onnxreg.converters.evaluation import metrics
from onnxreg.converters.evaluation.evaluate import recompute
from onnxreg.converters.evaluation.evaluators import Passage, Question, Texts
from onnxreg.converters.evaluation.metric import Metric, ScoreTable, metric_errors
from onnxreg.converters.evaluation.rows import LabelledBoxes, LabelledPixels, LabelledRow, LabelledRows
from onnxreg.converters.evaluation.suite import Fixture, TextSpan
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, RegError
from onnxreg.schema.gates.statements import EvaluationDocument

RANDOM = np.random.RandomState(0)
NO_SUBJECT: Any = SimpleNamespace()
LABELS = ("negative", "neutral", "positive")


def value(name: str, items: Any, predictions: Any, reference: Any = None, labels: Any = ()) -> float:
    metric = metrics.find(name)()
    rows = metric.scores(items, predictions, predictions if reference is None else reference, labels)
    assert rows.shape == (len(items), len(metric.columns(labels)))
    return metric.value(rows)


@given(arrays.arrays(np.int64, st.tuples(st.integers(1, 60), st.just(2)), elements=st.integers(0, 9)))
def test_values_of_any_classes_are_those_of_scikit_learn_to_the_bit(classes):
    from sklearn.metrics import accuracy_score, f1_score

    right, predicted = classes.T
    rows = classes.astype(np.float64)
    assert metrics.find("accuracy")().value(rows) == accuracy_score(right, predicted)
    macro = f1_score(right, predicted, average="macro", zero_division=0.0)
    assert metrics.find("macro_f1")().value(rows) == macro


@given(arrays.arrays(np.float64, st.tuples(st.integers(1, 60), st.just(2)), elements=st.integers(0, 20)))
def test_values_of_any_pairs_are_those_of_scipy_to_the_bit(rows):
    from scipy.stats import spearmanr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = float(spearmanr(rows[:, 0], rows[:, 1]).statistic)
    np.testing.assert_equal(metrics.find("spearman")().value(rows), expected)


def test_ranks_and_documents_as_scikit_learn_ranks_them():
    from sklearn.metrics import ndcg_score, top_k_accuracy_score

    values, right = RANDOM.normal(size=(200, 12)).round(1), RANDOM.randint(0, 12, 200)
    evaluator = LabelledRows(NO_SUBJECT)
    pairs = zip(values, right, strict=True)
    ranks = [evaluator.compare("y", int(label), {"y": row[None]}) for row, label in pairs]
    for k, name in ((1, "top_1"), (5, "top_5")):
        expected = top_k_accuracy_score(right, values, k=k, labels=range(12))
        assert value(name, [None] * 200, ranks) == pytest.approx(expected)
    vectors = RANDOM.normal(size=(40, 21, 8))
    relevance = RANDOM.randint(0, 4, (40, 20)).astype(float)
    items = [Texts("q", documents=tuple(Passage("d", one) for one in row)) for row in relevance]
    query, documents = vectors[:, :1], vectors[:, 1:]
    norms = np.linalg.norm(query, axis=2) * np.linalg.norm(documents, axis=2)
    cosines = (query * documents).sum(axis=2) / norms
    assert value("ndcg_10", items, list(vectors)) == pytest.approx(ndcg_score(relevance, cosines, k=10))


def test_an_item_with_a_pair_and_documents_is_judged_by_the_metrics_of_both():
    both, vectors = (
        Texts("a", "b", 2.0, (Passage("c", 1.0), Passage("d", 0.0))),
        RANDOM.normal(size=(4, 8)),
    )
    pair, query = Texts("a", "b", 2.0), Texts("a", documents=both.documents)
    for name, alone, own in (("spearman", pair, [0, 1]), ("ndcg_10", query, [0, 2, 3])):
        row = metrics.find(name)().row
        assert row(both, vectors, vectors, ()) == row(alone, vectors[own], vectors[own], ())


WORDS = st.lists(st.sampled_from(["a", "The", "house", "is", "small.", "s'il", "vous"]), max_size=6)


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=9))
def test_errors_of_words_are_those_of_jiwer(pairs):
    import jiwer

    texts = [(" ".join(said), " ".join(heard)) for said, heard in pairs if said]
    items = [SimpleNamespace(text=said.upper() + "!") for said, _ in texts]
    if texts:
        plain = [
            [one.lower().translate({39: None, 46: None}) for one in side] for side in zip(*texts, strict=True)
        ]
        assert value("word_error_rate", items, [heard for _, heard in texts]) == jiwer.wer(*plain)


def test_silence_that_is_heard_as_silence_has_no_errors():
    silence, said = SimpleNamespace(text=""), SimpleNamespace(text="one two")
    assert value("word_error_rate", [silence] * 2, ["", ""]) == 0
    assert value("word_error_rate", [silence, said], ["thanks", "one two"]) == 0.5
    assert metrics.find("word_error_rate")().skill(np.array([[2.0, 2.0]])) == 0


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=9))
def test_the_f_score_of_characters_is_the_mean_of_sacrebleu(pairs):
    from sacrebleu.metrics import CHRF

    items = [SimpleNamespace(target=" ".join(right)) for right, _ in pairs]
    written = [" ".join(words) for _, words in pairs]
    scores = [
        CHRF().sentence_score(text, [item.target]).score for text, item in zip(written, items, strict=True)
    ]
    assert value("chrf", items, written) == pytest.approx(np.mean(scores) / 100)


@pytest.mark.parametrize("mask", [float(np.finfo(np.float32).min), -np.inf])
@pytest.mark.parametrize(
    ("outputs", "cosine"),
    [
        ([5, -7, -np.inf], 1),
        ([5, -7, -65504], 1),
        ([-5, 7, -np.inf], -1),
        ([5, -7, 0], 0),
        ([5, -7, np.inf], 0),
    ],
)
def test_a_mask_makes_no_outputs_alike(mask, outputs, cosine):
    reading = LabelledRows(NO_SUBJECT).reading(LabelledRow({}))
    parent, child = (reading.predict({"y": np.array([one], np.float32)}) for one in ([5, -7, mask], outputs))
    assert value("output_cosine", [None], [child], [parent]) == pytest.approx(cosine)
    assert value("output_cosine", [None], [parent]) == pytest.approx(1)


def boxes_of(rows: int) -> Any:
    """Draw boxes: left, top, right and bottom, as shares of an image."""
    start = RANDOM.uniform(0, 0.6, (rows, 2))
    return np.hstack([start, start + RANDOM.uniform(0.1, 0.4, (rows, 2))])


def test_the_average_precision_of_boxes_is_that_of_coco(capsys):
    pytest.importorskip("pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    subject: Any = SimpleNamespace(loaded=SimpleNamespace(labels=LABELS))
    evaluator, coco = LabelledBoxes(subject), COCO()
    items, predictions, found, right = [], [], [], []
    for image in range(1, 8):
        boxes = boxes_of(5)
        padded = np.vstack([np.column_stack([RANDOM.randint(0, 3, 5), boxes]), np.full((1, 5), -1)])
        label = evaluator.read_label(padded[None], Path("s.npz"))
        near = np.vstack([boxes + RANDOM.normal(scale=0.02, size=boxes.shape), boxes_of(150)])
        middle, size = (near[:, :2] + near[:, 2:]) / 2, near[:, 2:] - near[:, :2]
        logits = RANDOM.normal(size=(1, 155, 4 if image % 2 else 3))
        logits[0, range(5), label[:, 0].astype(int)] += 6
        outputs = {"logits": logits, "pred_boxes": np.hstack([middle, size])[None]}
        items.append(SimpleNamespace(label=label))
        predictions.append(evaluator.compare("logits", label, outputs))
        assert predictions[-1].shape == (100, 6)
        for rows, side in ((label, right), (predictions[-1], found)):
            side += [
                {"image_id": image, "category_id": int(row[0]), "score": row[1], "iscrowd": 0, "id": len(side) + at + 1,
                 "bbox": [*row[-4:-2], *(row[-2:] - row[-4:-2])], "area": 1.0}
                for at, row in enumerate(rows)
            ]  # fmt: skip
    coco.dataset = {
        "images": [{"id": n} for n in range(1, 8)],
        "annotations": right,
        "categories": [{"id": n} for n in range(3)],
    }
    coco.createIndex()
    judge = COCOeval(coco, coco.loadRes(found), "bbox")
    judge.evaluate()
    judge.accumulate()
    expected = judge.eval["precision"][:, :, :, 0, 2]
    got = value("mean_average_precision", items, predictions, labels=LABELS)
    assert got == pytest.approx(expected[expected > -1].mean(), abs=1e-9) and 0.3 < got < 0.99
    nothing = value("mean_average_precision", items, [each[:0] for each in predictions], labels=LABELS)
    assert nothing == 0 and capsys.readouterr().err == ""
    with pytest.raises(InputError, match="five numbers for each box"):
        evaluator.read_label(np.array([1]), Path("s.npz"))
    with pytest.raises(InputError, match="a class above those of the model"):
        evaluator.compare("logits", np.array([[3.0, 0, 0, 1, 1]]), {})


def test_the_overlap_of_maps_is_that_of_scikit_learn():
    from sklearn.metrics import jaccard_score

    subject: Any = SimpleNamespace(loaded=SimpleNamespace(labels=LABELS))
    evaluator, right = LabelledPixels(subject), RANDOM.randint(0, 3, (9, 8, 8))
    logits = RANDOM.normal(size=(9, 1, 3, 8, 8))
    assert [evaluator.read_label(one[None], Path("s.npz")).tolist() for one in right] == right.tolist()
    maps = [evaluator.compare("y", a, {"y": b}) for a, b in zip(right, logits, strict=True)]
    expected = jaccard_score(right.ravel(), logits[:, 0].argmax(1).ravel(), average="macro")
    assert value("mean_iou", [None] * 9, maps, labels=LABELS) == pytest.approx(expected)
    half = evaluator.compare("y", right[0], {"y": logits[0][:, :, ::2, ::2]})
    assert np.array_equal(
        half[:, 0],
        evaluator.compare("y", right[0][::2, ::2], {"y": logits[0][:, :, ::2, ::2]})[:, 0],
    )
    ignored = evaluator.compare("y", np.full((8, 8), 255), {"y": logits[0]})
    assert not ignored.any() and metrics.find("mean_iou")().value(ignored.ravel()[None]) == 0
    with pytest.raises(InputError, match="a map of classes for each row"):
        evaluator.read_label(np.array([1]), Path("s.npz"))


def test_a_model_that_always_says_the_commonest_class_has_no_skill():
    right = [0] * 150 + [1] * 50
    items = [SimpleNamespace(label=LABELS[number]) for number in right]
    for name in ("accuracy", "macro_f1"):
        metric = metrics.find(name)()
        assert metric.skill(metric.scores(items, [0] * 200, [0] * 200, LABELS)) == 0.0
        assert metric.skill(metric.scores(items, right, right, LABELS)) == 1.0


@pytest.mark.parametrize(
    ("answers", "prediction", "exact", "f1"),
    [
        (("the Eiffel Tower",), "Eiffel tower!", 1.0, 1.0),
        (("Paris", "in Paris"), "in Paris, France", 0.0, 0.8),
        (("42",), "forty-two", 0.0, 0.0),
        ((), "", 1.0, 1.0),
        ((), "Paris", 0.0, 0.0),
        (("Paris",), "", 0.0, 0.0),
    ],
)
def test_answers_worked_out_by_hand(answers, prediction, exact, f1):
    items = [Question("?", "context", answers)]
    assert value("exact_match", items, [prediction]) == exact
    assert value("answer_f1", items, [prediction]) == pytest.approx(f1)


def tags(text: str) -> Any:
    return np.array([".AB".index(letter) - 1 for letter in text], dtype=np.int64)


def test_spans_as_seqeval_counts_them():
    from seqeval.metrics import f1_score as span_f1
    from seqeval.scheme import IOB2

    ten = "0123456789"
    items = [
        Fixture(ten, (TextSpan(0, 4, "A"), TextSpan(6, 8, "B"))),
        Fixture(ten, (TextSpan(2, 8, "A"),)),
        Fixture("0123", ()),
    ]
    predictions = [tags("AAAA..B..."), tags("..AAAAAA.."), tags(".BB.")]
    gold = ["B-A I-A I-A I-A O O B-B I-B O O", "O O B-A I-A I-A I-A I-A I-A O O", "O O O O"]
    said = ["B-A I-A I-A I-A O O B-B O O O", "O O B-A I-A I-A I-A I-A I-A O O", "O B-B I-B O"]
    sides = ([words.split() for words in side] for side in (gold, said))
    expected = span_f1(*sides, mode="strict", scheme=IOB2)
    assert expected == pytest.approx(4 / 7)
    assert value("span_f1", items, predictions, labels=("A", "B")) == pytest.approx(expected)


def test_perplexity_is_the_exponential_of_the_mean_over_tokens():
    predictions = [(2.0, 4, 100), (9.0, 6, 100)]
    assert value("perplexity", [None] * 2, predictions) == pytest.approx(math.exp(1.1))
    perplexity = metrics.find("perplexity")()
    assert perplexity.loss(10.0, 10.5) == pytest.approx(0.05)
    uniform = np.array([[4 * math.log(100), 4, 100]])
    assert perplexity.skill(uniform) == pytest.approx(0.0)


numbers = st.floats(-1e6, 1e6, allow_nan=False, width=64)


@given(st.data(), st.integers(1, 30), st.integers(1, 3))
def test_a_table_does_not_tell_the_order_of_the_items(data, rows, width):
    columns = tuple(f"column {number}" for number in range(width))
    parent, candidate = (
        data.draw(arrays.arrays(np.float64, (rows, width), elements=numbers)) for _ in range(2)
    )
    groups = data.draw(st.lists(st.integers(0, 40), min_size=rows, max_size=rows))
    order = data.draw(st.permutations(range(rows)))
    table = ScoreTable.of(columns, parent, candidate, groups)
    moved = [groups[number] for number in order]
    turned = ScoreTable.of(columns, parent[list(order)], candidate[list(order)], moved)
    assert turned.encode() == table.encode()
    again = ScoreTable.decode(table.encode(), "scores")
    assert again.columns == columns and again.encode() == table.encode()
    assert (again.parent == table.parent).all() and (again.candidate == table.candidate).all()


HEAD = b"group,parent:a,candidate:a\n"


@pytest.mark.parametrize(
    "data",
    [b"", b"group\n", HEAD + b"0,1,2\n1,0,2\n", HEAD + b"0,1\n", b"\xff"],
    ids=["empty", "no columns", "another order", "a short row", "no text"],
)
def test_invalid_tables_are_refused(data):
    with pytest.raises(InputError, match=r"scores\.csv is not a table of item scores"):
        ScoreTable.decode(data, "scores.csv")


class Steady(Metric):
    """A metric that gives the numbers it gets."""

    id = "steady"
    tasks = frozenset({"pooling"})
    limit = 0.1
    min_groups = 1

    def columns(self, labels: Any) -> tuple[str, ...]:
        return ("score",)

    def row(self, item: Any, prediction: Any, reference: Any, labels: Any) -> Any:
        return [prediction]

    def value(self, rows: Any) -> float:
        return float(rows.mean())


def table_of(parent: Any, candidate: Any, groups: Any = None) -> ScoreTable:
    return ScoreTable.of(("score",), parent, candidate, groups or range(len(parent)))


@pytest.mark.parametrize(
    ("loss", "state"), [(0.05, "certified"), (0.1, "refused"), (0.2, "refused"), (-0.3, "certified")]
)
def test_the_rule_is_strict_about_the_limit(loss, state):
    parent = np.full((10, 1), 0.5)
    limit = 0.1 if loss != 0.1 else 0.5 - (0.5 - 0.1)
    judgement = Steady(limit).judge(table_of(parent, parent - loss), {}).record
    assert judgement.state == state and judgement.loss == pytest.approx(loss)
    assert judgement.interval == pytest.approx((loss, loss))


def test_a_loss_whose_interval_spans_the_limit_is_unclear():
    parent, candidate = np.ones((200, 1)), np.ones((200, 1))
    candidate[:2] = 0
    table = table_of(parent, candidate)
    judgement = Steady(0.008).judge(table, {}).record
    assert judgement.interval is not None and judgement.interval[0] < 0.008 < judgement.interval[1]
    assert judgement.state == "unknown" and judgement.reasons[0].startswith("unclear")
    wide = Steady(0.012).judge(table, {}).record
    assert wide.state == "certified" and len(wide.reasons) == 2
    for settings in ({"margin": True}, {"other_labels": {"SSN": 3}}):
        assert Steady(0.012).judge(table, settings).record.state == "unknown"
    assert Steady(0.008).judge(table_of(parent, parent * 0), {}).record.state == "refused"


def test_few_items_or_a_parent_that_guesses_prove_nothing():
    poor, metric = np.full((10, 1), 0.1), Steady(0.01)
    assert metric.judge(table_of(poor, poor * 0), {}).record.state == "unknown"
    metric.min_groups = 2  # type: ignore[misc]
    tables = (table_of(poor + 0.5, poor, groups) for groups in ([0] * 10, [0, 1] * 5))
    one, two = (metric.judge(table, {}).record for table in tables)
    assert (one.state, one.interval) == ("unknown", None) and two.interval is not None


@pytest.mark.parametrize(
    ("skill", "groups", "state"),
    [(0.2, 200, "certified"), (0.199, 200, "unknown"), (0.2, 199, "unknown"), (0.199, 10_000, "unknown")],
)
def test_the_least_evidence_is_enough(skill, groups, state):
    metric, scores = Steady(0.01), np.full((groups, 1), skill)
    metric.min_groups = Metric.min_groups  # type: ignore[misc]
    assert metric.judge(table_of(scores, scores), {}).record.state == state


def test_doubts_have_the_words_that_earlier_certificates_record():
    """`recompute` compares the reasons, so other words make each earlier certificate look forged."""
    metric, scores = Steady(0.01), np.full((10, 1), 0.1)
    metric.min_groups = Metric.min_groups  # type: ignore[misc]
    assert metric.judge(table_of(scores, scores), {}).record.reasons == (
        "the suite has 10 independent items, steady needs 200",
        "the parent itself is hardly better than a guess: its skill by steady is 0.1, at least 0.2 is needed",
    )


def test_a_certificate_whose_limit_the_metric_refuses_is_not_recomputed():
    """A label that loses all of its recall would be certified by a limit above 1."""
    metric = metrics.CharacterRecall()
    parent = np.array([[1000.0, 400, 400, 400, 2]] * 20)
    table = ScoreTable.of(metric.columns(["NAME"]), parent, parent * [1, 1, 0, 1, 1], range(20))
    record = metric.judge(table, {}).record.to_json()
    assert record["state"] == "refused"
    scores = {"path": "scores.csv", "digest": str(Digest.of(table.encode()))}
    record |= {"limit": 1.5, "state": "certified", "item_scores": scores}
    about = {"format": "onnxreg-evaluation", "format_version": 1, "metrics": [record], "state": "certified"}
    about |= dict.fromkeys(("artifact", "suite"), str(Digest.of(b"")))
    with pytest.raises(IntegrityError):
        recompute(EvaluationDocument.from_json(about), lambda digest: table.encode(), "it")


def test_the_limits_are_those_of_the_documentation():
    page = (Path(__file__).parents[3] / "docs" / "certification.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.count("|") == 6 and "er | 0." in line]
    stated = {
        name: (row[3].strip(), float(row[4])) for row in rows for name in re.findall(r"`(\w+)`", row[1])
    }
    assert stated == {metric.id: (metric.direction, metric.limit) for metric in metrics.METRICS}
    few = {metric.id: metric.min_groups for metric in metrics.METRICS if metric.min_groups != 200}
    assert few == {"perplexity": 100} and "(`perplexity`: 100)" in page


class Broken(Steady):
    def value(self, rows: Any) -> float:
        return 1 / float(rows.sum() - 3) if rows.sum() == 3 else math.nan


def test_a_metric_that_gives_nan_or_fails_is_an_error():
    fails = r"steady fails: ZeroDivisionError in test_metrics\.py"
    for count, message in ((2, "steady gives nan"), (3, fails)):
        with pytest.raises(RegError, match=message) as caught, metric_errors(Broken):
            Broken().judge(table_of(np.ones((count, 1)), np.ones((count, 1))), {})
        assert caught.value.family == "conversion"
