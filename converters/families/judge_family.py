"""The judgement of a family on held-out rows: accuracy, loss in reduced precisions, rejection of outliers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.engine.measure import make_check
from onnxreg.converters.families.detector import VERDICT, Detector
from onnxreg.converters.families.precisions import Check
from onnxreg.converters.families.rows import HeldOut, RowEmbeddings, outputs_of
from onnxreg.converters.families.statistics import PairedTest, wilson
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.family_file import FamilyLimits


@dataclass(frozen=True)
class Truth:
    """The classes of rows: `labels` are positions in a list of classes, -1 for a row of no class."""

    labels: Any
    dataset: str

    @classmethod
    def of(cls, held_out: HeldOut, key: str, classes: Sequence[str], member: str) -> "Truth":
        """Read an array of class ids. InputError, naming the member, for a class that it does not have."""
        if held_out.rows[key].dtype.kind != "U" or held_out.rows[key].ndim != 1:
            raise InputError(f"{member}: the held-out array {key} is not an array of class ids")
        return cls(positions(held_out.rows[key].tolist(), classes, member), held_out.dataset)


def positions(ids: Sequence[str], classes: Sequence[str], member: str) -> Any:
    """Return the position of each class id, int64; -1 for ""."""
    import numpy as np

    by_id = {"": -1, **{class_id: index for index, class_id in enumerate(classes)}}
    if unknown := next((class_id for class_id in ids if class_id not in by_id), None):
        raise InputError(
            f"{member}: a held-out row has the class {unknown[:80]!r}, which it was not trained on"
        )
    return np.array([by_id[class_id] for class_id in ids], np.int64)


def right(logits: Any, truth: Truth) -> list[bool]:
    """Tell for each row that has a class if it is answered right."""
    has_class = truth.labels >= 0
    return [bool(hit) for hit in (logits.argmax(axis=1) == truth.labels)[has_class]]


def compared(logits: Sequence[Any], truth: Truth, output: str, limits: FamilyLimits) -> list[list[Check]]:
    """Make the checks of each precision: the accuracy of float32 (first), and the loss of the others."""
    full, *others = (right(precision, truth) for precision in logits)
    return [accuracy(full, output, truth)] + [
        accuracy_loss(full, hits, output, truth, limits) for hits in others
    ]


def accuracy(hits: Sequence[bool], output: str, truth: Truth) -> list[Check]:
    """Make the check of the full precision's accuracy; none without rows."""
    if not hits:
        return []
    about = _about(f"accuracy of {output}", len(hits), truth.dataset, wilson(sum(hits), len(hits)))
    return [make_check(about, "accuracy", sum(hits) / len(hits))]


def accuracy_loss(
    before: Sequence[bool], after: Sequence[bool], output: str, truth: Truth, limits: FamilyLimits
) -> list[Check]:
    """Make the checks of a reduced precision's loss, by a paired test on the same rows; none without rows.

    It fails if the loss is above the limit, passes if the whole interval is not, and is otherwise `unknown`:
    too few rows.
    """
    if not before:
        return []
    pairs = PairedTest.of(before, after)
    about = _about(f"accuracy loss of {output}", pairs.rows, truth.dataset, pairs.interval)
    check = make_check(about, "accuracy_loss", pairs.loss, limits.accuracy_loss)
    if check["verdict"] == "pass" and pairs.interval[1] > (limits.accuracy_loss or 0.0):
        check["verdict"] = "unknown"
    tested = {key: value for key, value in about.items() if key != "interval"}
    return [check, make_check(tested, "mcnemar_p", pairs.mcnemar)]


def calibration(detector: Detector) -> Check:
    """Make the check of the rows that gave the detector's threshold: the share that it rejects."""
    share, interval = detector.false_rejection
    about = _about("false rejection, calibration", detector.held_out, detector.held_out_dataset, interval)
    return make_check(about, "false_rejection_rate", share)


def rejected(session: Any, embeddings: Any) -> int:
    """Count the rows that a detector's graph rejects."""
    return int((~outputs_of(session, embeddings)[VERDICT]).sum())


def detection(
    detector: Any,
    backbone: str,
    held_out: RowEmbeddings | None,
    outliers: RowEmbeddings | None,
    limits: FamilyLimits,
) -> Iterator[Check]:
    """Yield the checks of held-out rows and of outliers: the share that the detector rejects.

    Args:
        detector: a session of its graph, so that the file itself is measured.
        backbone: the precision of the backbone that made the embeddings, if they are not stored ones.
    """
    for embedded, name, metric, least in (
        (held_out, "false rejection", "false_rejection_rate", None),
        (outliers, "rejection of outliers", "true_positive_rate", limits.ood_true_positive),
    ):
        if embedded is not None:
            rows = len(embedded.embeddings)
            hits = rejected(detector, embedded.embeddings)
            full_name = name if embedded.stored else f"{name}, {backbone} backbone"
            about = _about(full_name, rows, embedded.dataset, wilson(hits, rows))
            yield make_check(about, metric, hits / rows, least, is_least=True)


def _about(name: str, samples: int, dataset: str, interval: tuple[float, float]) -> dict[str, Any]:
    return {
        "name": name,
        "samples": samples,
        "dataset": dataset,
        "interval": _six(interval),
    }


def _six(interval: tuple[float, float]) -> list[float]:
    """Six significant digits."""
    return [float(f"{end:.6g}") for end in interval]
