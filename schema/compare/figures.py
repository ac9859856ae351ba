"""The measured values (figures) of two versions side by side: each quality and loss of each artifact, with a verdict.

The 95 % interval of a change follows from the figures that each version published. It treats the two versions as measured
on independent texts, because published item scores are sorted and cannot be paired. A paired interval would be narrower.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import hypot, isfinite, sqrt
from typing import Any, Literal, get_args

from onnxreg.schema.compare.manifests import LocatedChange, paired
from onnxreg.schema.compare.severity import CHECKS, SEVERE, Direction, better_direction
from onnxreg.schema.core.canonical import Count, Record
from onnxreg.schema.log.state import RECALL
from onnxreg.schema.manifest.manifest import Artifact, Check
from onnxreg.schema.manifest.vocabulary import LOSS

ArtifactPairs = Mapping[str, tuple[Artifact | None, Artifact | None]]
"""For each name, such as `onnx/float32/model.onnx`: the old and the new version's artifact (None if absent)."""
Interval = tuple[float, float]
Z = 1.959964
"""The 97.5 % quantile of the normal distribution."""
PROPORTIONS = frozenset({"character_recall", "accuracy", "top_1", "top_5", "exact_match"})
"""The metrics whose values are shares from 0 to 1. Their samples are spans, texts or rows."""
FigureVerdict = Literal["worse", "removed", "uncompared", "unclear", "added", "better", "equal"]
VERDICTS: tuple[FigureVerdict, ...] = get_args(FigureVerdict)
"""The verdicts from worst to best."""


def wilson(share: float, samples: int) -> Interval:
    """Return the 95 % score interval of a share that was measured on independent samples (Wilson, JASA 22, 1927)."""
    spread = Z * sqrt(share * (1 - share) / samples + Z * Z / (4 * samples * samples))
    middle, total = share + Z * Z / (2 * samples), 1 + Z * Z / samples
    return max(0.0, (middle - spread) / total), min(1.0, (middle + spread) / total)


def difference(old: float, old_interval: Interval, new: float, new_interval: Interval) -> Interval:
    """Return the 95 % interval of `new - old` (Zou and Donner, Stat. Med. 27, 2008)."""
    # a value may be outside its published interval: then its distance to the nearer end counts as 0
    low = hypot(max(new - new_interval[0], 0.0), max(old_interval[1] - old, 0.0))
    high = hypot(max(new_interval[1] - new, 0.0), max(old - old_interval[0], 0.0))
    return new - old - low, new - old + high


def own_interval(check: Check) -> Interval | None:
    """Return the published interval of a check's value, or, if none was published, Wilson's interval of a share."""
    if check.interval is not None or check.value is None or not check.samples:
        return check.interval
    is_share = check.metric in PROPORTIONS and 0 <= check.value <= 1
    return wilson(check.value, check.samples) if is_share else None


class FigureRow(Record, frozen=True, kw_only=True):
    """One figure of one artifact in the old and the new version.

    `change` is absent if a figure is missing or the figures cannot be compared. `interval` is the 95 % interval of the
    change; `basis` says if it follows from published intervals or from numbers of samples. `verdict` is `unclear` if the
    interval includes 0. `direction` says which values are better. `old_check` and `new_check` are verdicts of checks.
    `changes` are indexes into the diff's list of changes.
    """

    artifact: str
    path: str
    name: str
    metric: str
    old: float | None
    new: float | None
    change: float | None = None
    interval: tuple[float, float] | None = None
    basis: Literal["published", "samples"] | None = None
    direction: Direction | None
    verdict: FigureVerdict
    old_check: str | None
    new_check: str | None
    limit: float | None
    changes: tuple[Count, ...]

    @property
    def is_new_failure(self) -> bool:
        return self.new_check == "fail" and self.old_check != "fail"

    @property
    def rank(self) -> tuple[bool, int, float, str, str]:
        """A sort key that puts the worst figures first."""
        loss = (self.change or 0.0) * (-1 if self.direction == "higher" else 1)
        return not self.is_new_failure, VERDICTS.index(self.verdict), -loss, self.artifact, self.name


def direction_of(check: Check) -> Direction | None:
    """Return which values of a check are better: `higher` or `lower`; None if it measures neither a quality nor a loss."""
    return better_direction(check.label, check.direction)


def figure_rows(pairs: ArtifactPairs, changes: Sequence[LocatedChange]) -> dict[tuple[str, str], FigureRow]:
    """Make a row for each quality and loss, and for other checks with a severe change or a new verdict."""
    shown = {
        delta.at.names[:2]
        for change, delta in changes
        if delta.at.pattern.startswith("artifacts[].checks[]")
        and (change.severity in SEVERE or delta.at.pattern.endswith("[].verdict"))
    }
    rows = {}
    for artifact, (old, new) in pairs.items():
        if old is None or new is None:
            continue
        checks = paired(old.checks, new.checks, CHECKS)
        names = Counter(check.name for pair in checks.values() if (check := pair[1] or pair[0]))
        for name, (before, after) in checks.items():
            check = after or before
            if check is not None and ((artifact, name) in shown or direction_of(check)):
                label = check.name if names[check.name] == 1 else check.label
                rows[artifact, name] = FigureRow(
                    artifact=artifact,
                    path=new.path,
                    name=label.removeprefix(f"{check.metric}/"),
                    metric=check.metric,
                    old=before.value if before else None,
                    new=after.value if after else None,
                    old_check=before.verdict if before else None,
                    new_check=after.verdict if after else None,
                    limit=check.limit,
                    direction=direction_of(check),
                    changes=(),
                    **_compared((old, new), before, after),
                )
    return rows


def _is_comparable(sides: tuple[Artifact, Artifact], checks: tuple[Check, Check]) -> bool:
    """True if both checks were measured on the same suite. Checks without suite and direction are comparable too.

    A recall or recall loss without a suite counts as measured on the suite of its artifact.
    """
    suites = [
        check.dataset or (side.suite if check.name.startswith((RECALL, LOSS)) else None)
        for side, check in zip(sides, checks, strict=True)
    ]
    needs_suite = any(check.direction is not None for check in checks)
    return suites[0] == suites[1] and (suites[0] is not None or not needs_suite)


def _compared(sides: tuple[Artifact, Artifact], old: Check | None, new: Check | None) -> dict[str, Any]:
    """Compare the values of two checks. Return a row's `verdict` and, if known, its `change`, `interval` and `basis`."""
    if old is None or old.value is None:
        return {"verdict": "equal" if new is None or new.value is None else "added"}
    if new is None or new.value is None:
        return {"verdict": "removed"}
    change, direction = new.value - old.value, direction_of(new)
    if not _is_comparable(sides, (old, new)) or not isfinite(change):
        return {"verdict": "uncompared"}
    if change == 0:
        return {"change": change, "verdict": "equal"}
    row: dict[str, Any] = {"change": change}
    if direction is None:
        row["verdict"] = "worse" if new.verdict == "fail" else "unclear"
    else:
        row["verdict"] = "better" if (change > 0) == (direction == "higher") else "worse"
    before, after = own_interval(old), own_interval(new)
    if before is not None and after is not None:
        interval = difference(old.value, before, new.value, after)
        if all(map(isfinite, interval)):
            basis = "samples" if None in (old.interval, new.interval) else "published"
            row |= {"interval": interval, "basis": basis}
            row |= {"verdict": "unclear"} if interval[0] <= 0 <= interval[1] else {}
    return row
