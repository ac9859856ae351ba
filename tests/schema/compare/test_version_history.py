"""The history of a model: which artifact and figure a line is about, and which lines can be compared."""

from typing import Any

import pytest
from support.schema.edits import copied, sha

from onnxreg.schema.compare.version_history import HistoryEntry, HistoryRow, ModelHistory, model_history
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.manifest.manifest import Manifest

SPEARMAN = 3
"""The position of `sts/spearman` among the checks of the int8 artifact."""


def record(version: str, value: dict[str, Any] | None) -> HistoryEntry:
    document = None if value is None else Manifest.from_json(value)
    row = HistoryRow(
        version=version, manifest=Digest.of(version.encode()), time=None, actor=None, status="", channels=()
    )
    return row, document, {}


def changed(full: dict[str, Any], spearman: float, suite: int = 90) -> dict[str, Any]:
    value: dict[str, Any] = copied(full)
    value["artifacts"][1]["checks"][SPEARMAN] |= {
        "value": spearman,
        "interval": [spearman - 0.01, spearman + 0.01],
        "dataset": sha(suite),
    }
    return value


def history(full: dict[str, Any], metric: str | None = "sts/spearman") -> ModelHistory:
    """Three versions, the oldest measured on another suite, and one that was taken down."""
    records = [
        record("1.3.0", changed(full, 0.85)),
        record("1.2.0", None),
        record("1.1.0", changed(full, 0.83)),
        record("1.0.0", changed(full, 0.5, suite=91)),
    ]
    return model_history("acme/pii-small", records, metric)


def test_another_suite_is_not_charted(full):
    found = history(full)
    assert [found.is_charted(row) for row in found.versions] == [True, False, True, False]
    assert [row.value for row in found.versions] == [0.85, None, 0.83, 0.5]


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("sts/spearman", "sts/spearman"),
        ("spearman", "sts/spearman"),
        ("argmax_agreement", "parity/argmax_agreement"),
        ("recall", "recall/quant_recall_delta"),
        (None, "recall/quant_recall_delta"),
    ],
)
def test_a_figure_is_named_by_its_check_or_the_end_of_it(metric, name, full):
    assert history(full, metric).metric == name


def test_an_unknown_figure_is_an_error_with_the_nearest(full):
    with pytest.raises(NotFoundError) as caught:
        history(full, "spearmann")
    assert "spearman" in str(caught.value.hint)


def test_without_figures_the_smallest_artifact_is_listed(full):
    for artifact in full["artifacts"]:
        artifact.pop("checks", None)
    full["artifacts"][1].pop("certification")
    full.pop("certified"), full.pop("quant_recall_delta"), full.pop("quantization")
    found = model_history("acme/pii-small", [record("1.0.0", full)])
    (row,) = found.versions
    assert (found.metric, row.value) == (None, None)
    assert row.artifact is not None and row.artifact.path == "model.onnx"
