"""Compare the figures of two versions. A figure is a measured quality or loss of an artifact, such as its recall.

The 95 % interval of a change is computed from the published figures. The two versions are taken to be measured on
independent texts.
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

# Name -> the old and the new artifact, None if absent
ArtifactPairs = Mapping[str, tuple[Artifact | None, Artifact | None]]
Interval = tuple[float, float]
Z = 1.959964  # the 97.5 % quantile of the normal distribution
# The metrics whose values are shares from 0 to 1. Their samples are spans, texts or rows.
PROPORTIONS = frozenset({"character_recall", "accuracy", "top_1", "top_5", "exact_match"})
FigureVerdict = Literal["worse", "removed", "uncompared", "unclear", "added", "better", "equal"]
VERDICTS: tuple[FigureVerdict, ...] = get_args(FigureVerdict)  # from worst to best


def wilson(share: float, samples: int) -> Interval:
    """Return the 95 % score interval of a share of independent samples (Wilson, JASA 22, 1927)."""
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
    """Return the 95 % interval of a check's value: the published interval or, for a share, Wilson's interval."""
    if check.interval is not None or check.value is None or not check.samples:
        return check.interval
    is_share = check.metric in PROPORTIONS and 0 <= check.value <= 1
    return wilson(check.value, check.samples) if is_share else None


class FigureRow(Record, frozen=True, kw_only=True):
    """A row of the table of figures: one figure of one artifact, in the old and in the new version.

    `change` is absent if the figures cannot be compared. `interval` is the 95 % interval of `change`. `basis` says
    whether it was computed from published intervals or from numbers of samples. If the interval includes 0, `verdict`
    is `unclear`. `direction` says which values are better.
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
    changes: tuple[Count, ...]  # indexes into the diff's changes

    @property
    def is_new_failure(self) -> bool:
        return self.new_check == "fail" and self.old_check != "fail"

    @property
    def rank(self) -> tuple[bool, int, float, str, str]:
        """A sort key that puts the worst figures first."""
        loss = (self.change or 0.0) * (-1 if self.direction == "higher" else 1)
        return not self.is_new_failure, VERDICTS.index(self.verdict), -loss, self.artifact, self.name


def direction_of(check: Check) -> Direction | None:
    """Return `higher` or `lower`, whichever is better. Return None if the check measures neither a quality nor a loss."""
    return better_direction(check.label, check.direction)


def figure_rows(pairs: ArtifactPairs, changes: Sequence[LocatedChange]) -> dict[tuple[str, str], FigureRow]:
    """Make a row for each quality and loss. Other checks get a row if they have a severe change or a new verdict."""
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
    """True if two checks have the same suite, or if neither needs a suite, as for checks of parity."""
    suites = [
        check.dataset or (side.suite if check.name.startswith((RECALL, LOSS)) else None)
        for side, check in zip(sides, checks, strict=True)
    ]
    needs_suite = any(check.direction is not None for check in checks)
    return suites[0] == suites[1] and (suites[0] is not None or not needs_suite)


def _compared(sides: tuple[Artifact, Artifact], old: Check | None, new: Check | None) -> dict[str, Any]:
    """Compare two checks. Return the row's `verdict` and, if known, its `change`, `interval` and `basis`."""
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
