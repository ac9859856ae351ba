"""How well a family answers on rows that nobody trained on, and what that says of its reduced precisions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.engine.output_checks import make_check
from onnxreg.converters.families.detector import VERDICT, Detector
from onnxreg.converters.families.fitting_evidence import Embedded, HeldOut, outputs_of
from onnxreg.converters.families.precisions import Check
from onnxreg.converters.families.statistics import PairedTest, wilson
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.family_file import FamilyLimits


@dataclass(frozen=True)
class Truth:
    """The classes that rows have: `labels` are positions in a list of classes, -1 where a row is none of these."""

    labels: Any
    dataset: str

    @classmethod
    def of(cls, held_out: HeldOut, key: str, classes: Sequence[str], member: str) -> "Truth":
        """Read an array of class ids. InputError, naming the member, for a class that it does not have."""
        if held_out.rows[key].dtype.kind != "U" or held_out.rows[key].ndim != 1:
            raise InputError(f"{member}: the held-out array {key} is no array of class ids")
        return cls(positions(held_out.rows[key].tolist(), classes, member), held_out.dataset)


def positions(ids: Sequence[str], classes: Sequence[str], member: str) -> Any:
    """The position of each class id, int64; -1 for ""."""
    import numpy as np

    place = {"": -1, **{class_id: index for index, class_id in enumerate(classes)}}
    if unknown := next((each for each in ids if each not in place), None):
        raise InputError(
            f"{member}: a held-out row has the class {unknown[:80]!r}, which it was not trained on"
        )
    return np.array([place[each] for each in ids], np.int64)


def right(logits: Any, truth: Truth) -> list[bool]:
    """Of the rows that have a class, which ones are answered right."""
    counts = truth.labels >= 0
    return [bool(hit) for hit in (logits.argmax(axis=1) == truth.labels)[counts]]


def compared(logits: Sequence[Any], truth: Truth, output: str, limits: FamilyLimits) -> list[list[Check]]:
    """Of each variant of a member, of which the first is in float32, how well its logits are, or what they lose."""
    full, *others = (right(each, truth) for each in logits)
    return [accuracy(full, output, truth)] + [
        accuracy_loss(full, hits, output, truth, limits) for hits in others
    ]


def accuracy(hits: Sequence[bool], output: str, truth: Truth) -> list[Check]:
    """The accuracy of the full precision with its interval; nothing without rows."""
    if not hits:
        return []
    about = _about(f"accuracy of {output}", len(hits), truth.dataset, wilson(sum(hits), len(hits)))
    return [make_check(about, "accuracy", sum(hits) / len(hits))]


def accuracy_loss(
    before: Sequence[bool], after: Sequence[bool], output: str, truth: Truth, limits: FamilyLimits
) -> list[Check]:
    """What a reduced precision loses, by a paired test on the same rows; nothing without rows.

    It fails where the loss is above the limit, passes where the whole interval is not, and is `unknown` between: too few rows.
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
    """How often the detector rejects the rows that gave its threshold."""
    share, interval = detector.false_rejection
    about = _about("false rejection, calibration", detector.held_out, detector.held_out_dataset, interval)
    return make_check(about, "false_rejection_rate", share)


def rejected(session: Any, embeddings: Any) -> int:
    """How many rows the graph of a detector, in a session, takes to be out of distribution."""
    return int((~outputs_of(session, embeddings)[VERDICT]).sum())


def detection(
    detector: Any,
    backbone: str,
    held_out: Embedded | None,
    outliers: Embedded | None,
    limits: FamilyLimits,
) -> Iterator[Check]:
    """How often the detector rejects rows of the distribution, and rows that are not, by embeddings of the backbone in the
    precision `backbone`, or stored ones.

    Args:
        detector: a session of its graph: what is recorded is what the file does.
    """
    for found, name, metric, least in (
        (held_out, "false rejection", "false_rejection_rate", None),
        (outliers, "rejection of outliers", "true_positive_rate", limits.ood_true_positive),
    ):
        if found is not None:
            rows = len(found.embeddings)
            hits = rejected(detector, found.embeddings)
            what = name if found.stored else f"{name}, {backbone} backbone"
            about = _about(what, rows, found.dataset, wilson(hits, rows))
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
