"""What every metric keeps, ours and those of other packages."""

import json
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import plug_ins
from support.sampling import sampled

from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.evaluation import metrics
from onnxreg.converters.evaluation.evaluators import (
    LabelledText,
    Passage,
    Question,
    TextPair,
    Texts,
    Transcript,
)
from onnxreg.converters.evaluation.metric import EvaluationError, ScoreTable, percentiles
from onnxreg.converters.evaluation.rows import LabelledRow
from onnxreg.converters.evaluation.suite import Fixture, TextSpan
from onnxreg.converters.source import toolchain
from onnxreg.schema.core.errors import HostError, InputError, RegError
from onnxreg.schema.inputs.recipe_file import RecipeFile

LABELS = ("A", "B")
VECTORS = [np.eye(4)[[number % 4, (number + number % 3) % 4]] + 0.1 for number in range(8)]
SUBJECTS: dict[str, tuple[Sequence[Any], Sequence[Any], Sequence[Any]]] = {
    "accuracy": ([LabelledText(str(n), LABELS[n % 2]) for n in range(8)], [n % 2 for n in range(8)], [0] * 8),
    "answer_f1": ([Question("?", "c", ("new york",))] * 6, ["New York"] * 6, ["york"] * 6),
    "spearman": (
        [Texts("a", "b", float([3, 0, 0, 3, 0, 0, 3, 0][n])) for n in range(8)],
        VECTORS,
        [vectors[::-1] if n % 2 else np.ones((2, 4)) for n, vectors in enumerate(VECTORS)],
    ),
    "ndcg_10": (
        [Texts("q", documents=(Passage("a", 1.0), Passage("b", 0.0)))] * 6,
        [np.array([[1, 0], [1, 0.1], [0, 1]])] * 6,
        [np.array([[1, 0], [0, 1], [1, 0.1]])] * 6,
    ),
    "mean_cosine": ([Texts("a")] * 6, [np.ones((1, 3))] * 6, [np.array([[1.0, 0.0, 0.0]])] * 6),
    "output_cosine": ([LabelledRow({})] * 6, [np.ones((1, 3))] * 6, [np.array([[1.0, 0.0, 0.0]])] * 6),
    "top_1": ([LabelledRow({}, 1)] * 6, [(0, 8)] * 6, [(3, 8)] * 6),
    "top_5": ([LabelledRow({}, 1)] * 6, [(4, 8)] * 6, [(7, 8)] * 6),
    "span_f1": (
        [Fixture("0123", (TextSpan(0, 2, "A"),))] * 6,
        [np.array([0, 0, -1, -1])] * 6,
        [np.array([0, -1, -1, -1])] * 6,
    ),
    "character_recall": (
        [Fixture("0123456789" * 10, (TextSpan(0, 40, "A"),))] * 6,
        [np.array([0] * 40 + [-1] * 60)] * 6,
        [np.array([0] * 30 + [-1] * 70)] * 6,
    ),
    "mean_iou": (
        [LabelledRow({}, np.eye(2, dtype=int))] * 6,
        [np.array([[2, 2], [2, 2]])] * 6,
        [np.array([[1, 3], [1, 3]])] * 6,
    ),
    "mean_average_precision": (
        [LabelledRow({}, np.array([[0, 0.1, 0.1, 0.5, 0.5], [1, 0.5, 0.5, 1, 1]]))] * 6,
        [np.array([[0, 0.9, 0.1, 0.1, 0.5, 0.5], [1, 0.8, 0.5, 0.5, 1, 0.9]])] * 6,
        [np.array([[0, 0.9, 0.1, 0.2, 0.5, 0.5], [0, 0.8, 0.5, 0.5, 1, 1]])] * 6,
    ),
    "word_error_rate": ([Transcript("a.wav", "Call Anna!")] * 6, ["call  anna"] * 6, ["all Anna"] * 6),
    "chrf": ([TextPair("Haus", "the house")] * 6, ["the house"] * 6, ["a horse"] * 6),
    "perplexity": ([None] * 6, [(1.0, 3, 50)] * 6, [(2.0, 3, 50)] * 6),
}
SUBJECTS |= {"macro_f1": SUBJECTS["accuracy"], "exact_match": SUBJECTS["answer_f1"]}


@pytest.mark.parametrize("kind", sampled(metrics.METRICS, 3), ids=lambda kind: kind.id)
def test_a_metric_keeps_what_verdicts_rest_on(kind):
    pytest.importorskip(kind.uses)
    metric, (items, good, bad) = kind(), SUBJECTS[kind.id]
    parent, worse = (metric.scores(items, predictions, good, LABELS) for predictions in (good, bad))
    value, worse_value = metric.value(parent), metric.value(worse)
    assert metric.supports(items) and kind.__doc__
    assert metric.loss(value, worse_value) > 0 == metric.loss(value, value)
    assert (value > worse_value) is (metric.direction == "higher")
    assert metric.skill(worse) <= metric.skill(parent) <= 1 + 1e-9
    for rows in (parent, worse):  # of any rows, in any order
        assert metric.value(rows) == pytest.approx(metric.value(rows[::-1]), abs=1e-12)
        assert np.isfinite(metric.value(np.concatenate([rows, rows[:2]])))
    table = ScoreTable.of(metric.columns(LABELS), parent, worse, range(len(items)))
    published = ScoreTable.decode(table.encode(), "scores")
    assert metric.judge(published, {}) == metric.judge(table, {})
    with pytest.raises(InputError):
        kind(settings={"no_such_setting": 1})


MODULE = '''
import numpy as np
from onnxreg.converters.evaluation.metric import Metric

class Shortness(Metric):
    """The mean of one number for each text."""

    id = "shortness"
    version = 3
    tasks = frozenset({"pooling"})
    min_groups = 2
    fault = None

    def columns(self, labels):
        return ("norm",)

    def row(self, item, prediction, reference, labels):
        if self.fault == "raises":
            raise RuntimeError("secret text of the suite")
        norm = self.size(prediction) * (np.nan if self.fault == "nan" else 1)
        return [norm] * (2 if self.fault == "shape" else 1)

    def value(self, rows):
        return rows.mean()

    @staticmethod
    def size(vectors):
        return np.linalg.norm(vectors)
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a package with these metrics."""
    return lambda *entries, module=MODULE: plug_ins.install(
        tmp_path, monkeypatch, "metrics", *entries, module=module
    )


SHORTNESS = "shortness = other_plug_ins:Shortness"


@pytest.fixture(scope="module")
def encoder(make_checkpoint: Callable[..., Path]) -> Path:
    return make_checkpoint("bert", "")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> StepCache:
    return StepCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def export(encoder: Path, cache: StepCache, tmp_path: Path) -> Callable[[], Any]:
    """Export an encoder whose INT8 graph the metric judges on a suite of its own; the certificate."""

    def run() -> Any:
        rows = ({"text": f"w1{n} w2{n}", "id": f"{tmp_path.name} {n}"} for n in range(9))
        (tmp_path / "suite.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        steps = [
            {"name": "fp32", "pass": "OnnxConversion"},
            {"name": "int8", "pass": "OnnxDynamicQuantization", "input": "fp32"},
        ]
        judged = {"suite": str(tmp_path / "suite.jsonl"), "metrics": [{"metric": "shortness", "limit": 5.0}]}
        outputs = [{"step": "int8", "path": "model_int8.onnx"}]
        value = {"task": "pooling", "steps": steps, "outputs": outputs, "evaluation": judged}
        (tmp_path / "w").mkdir()
        plan = plan_export(RecipeFile.from_json(value), str(encoder), "acme/x")
        assert len(plan.warnings()) <= 1
        execute(plan, tmp_path / "w", cache)
        return json.loads((tmp_path / "w" / "certificates" / "model_int8.onnx.json").read_bytes())

    return run


def test_a_metric_of_another_package_judges_and_is_recorded(install, export):
    install(SHORTNESS)
    assert metrics.names() == [*[metric.id for metric in metrics.METRICS], "shortness"]
    assert "other_plug_ins" not in sys.modules
    (record,) = export()["metrics"]
    assert (record["metric"], record["version"], record["limit"]) == ("shortness", 3, 5.0)
    assert record["package"] in ("other-plug-ins", "other_plug_ins")
    assert record["samples"] == 9


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("fault = 'raises'", r"the metric shortness fails: RuntimeError in other_plug_ins\.py, line 19$"),
        pytest.param("fault = 'nan'", "shortness gives NaN or infinity for an item", marks=pytest.mark.more),
        pytest.param("fault = 'shape'", r"scores of shape \(2,\), expected \(1,\)", marks=pytest.mark.more),
        ("fault, gold = None, 'missing'", "the metric shortness fails: AttributeError"),
    ],
)
def test_a_metric_that_is_broken_publishes_nothing(install, export, fault, message):
    install(SHORTNESS, module=MODULE.replace("fault = None", fault))
    with pytest.raises(RegError, match=message) as caught:
        export()
    assert caught.value.family == "conversion"


METHODS = {"columns": "labels", "judge": "table, settings", "value": "rows", "skill": "rows", "check": ""}
METHODS |= {"loss": "parent, value", "supports": "items", "warnings": "items", "obstacles": "items, groups"}


@pytest.mark.parametrize("method", sampled(METHODS, 5))
def test_a_metric_whose_code_fails_anywhere_is_blamed_without_a_word_of_the_suite(install, export, method):
    fault = f"\n    def {method}(self, {METHODS[method]}):\n        raise KeyError('secret text')\n"
    install(SHORTNESS, module=MODULE + fault)
    with pytest.raises(EvaluationError) as caught:
        export()
    assert caught.value.message.startswith("the metric shortness fails: KeyError in other_plug_ins.py, line ")
    assert "secret" not in caught.value.message + caught.value.hint


def test_an_interval_is_absent_if_a_resample_is_infinite():
    assert percentiles(np.array([0.0, 1.0, np.nan])) == (0.025, 0.975)
    assert percentiles(np.array([0.0, 1.0, np.inf])) is None


@pytest.mark.parametrize("name", ["../../x", "a/b", "", "x y", "other"])
def test_a_metric_whose_id_is_no_name_of_a_file_or_not_its_own_is_refused(install, monkeypatch, name):
    entry = EntryPoint(name, "other_plug_ins:Shortness", "onnxreg.metrics")
    monkeypatch.setattr(toolchain, "entry_points", lambda group: [entry])
    install(module=MODULE if name == "other" else MODULE.replace('"shortness"', repr(name)))
    with pytest.raises(HostError, match="is not a metric with the id"):
        metrics.find(name)
