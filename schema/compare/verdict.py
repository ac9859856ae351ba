"""The first sentences of an overview: can an app run it, did it get worse, may it ship."""

from collections import Counter
from collections.abc import Iterator, Sequence

from onnxreg.schema.compare.artifact_rows import ArtifactRow
from onnxreg.schema.compare.figures import FigureRow
from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.core.numbers import counted
from onnxreg.schema.manifest.manifest import Manifest

MAX_NAMED = 3
"""Figures and files that a sentence names."""


def sentences(
    old: Manifest,
    new: Manifest,
    diff: ManifestDiff,
    artifacts: Sequence[ArtifactRow],
    figures: Sequence[FigureRow],
) -> Iterator[str]:
    """The verdict, the effect on an app first."""
    effect, label, counts = diff.summary.partition("Changes: ")
    yield effect.strip()
    if counts:
        yield label + counts
    if not diff.changes:
        return
    if old.name != new.name:
        yield f"They are versions of two models: {old.name} and {new.name}."
    yield _figures(figures)
    if failures := [f"{row.name} in {row.path}" for row in figures if row.is_new_failure]:
        yield f"Now failing: {_named(failures)}."
    yield _states(artifacts)
    yield from _moves(artifacts)
    if diff.members:
        yield f"Members that changed: {_named(list(diff.members))}."


def _figures(figures: Sequence[FigureRow]) -> str:
    """The figures that got worse, by how much, and if that is more than its interval."""
    counts = Counter(row.verdict for row in figures)
    total = counted(sum(row.change is not None for row in figures), "comparable figure")
    others = counts["uncompared"]
    if not figures:
        return "No figure was measured in both versions."
    if all(row.change is None for row in figures):
        return "No figure is compared: they were measured on different suites."
    worse = [row for row in figures if row.verdict == "worse" and row.change is not None]
    if worse:
        text = f"{len(worse)} of {total} got worse: {_named(list(map(_worse, worse)))}"
    else:
        unclear = f"; {counts['unclear']} changed by less than the interval" if counts["unclear"] else ""
        text = f"Of {total} none is clearly worse{unclear}"
    verb = "is" if others == 1 else "are"
    return f"{text}." + (
        f" {counted(others, 'figure')} {verb} not compared: another suite." if others else ""
    )


def _worse(row: FigureRow) -> str:
    """`DATE in model_int8.onnx by 0.0801 (95 %: 0.0267 to 0.14)`"""
    bounds = sorted(map(abs, row.interval)) if row.interval else ()
    interval = f" (95 %: {bounds[0]:.3g} to {bounds[1]:.3g})" if bounds else ""
    return f"{row.name} in {row.path} by {abs(row.change or 0):.3g}{interval}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"


def _states(artifacts: Sequence[ArtifactRow]) -> str:
    counts: Counter[str] = Counter()
    for row in artifacts:
        if row.new is not None:
            counts[row.new.state] += row.count
    total = counted(sum(counts.values()), "artifact")
    words = {"certified": "certified", "refused": "refused", "unknown": "not judged"}
    return f"Of {total}: " + ", ".join(f"{counts[state]} {word}" for state, word in words.items()) + "."


def _moves(artifacts: Sequence[ArtifactRow]) -> Iterator[str]:
    """Artifacts that may ship now, or no longer may."""
    names: dict[str, list[str]] = {}
    for row in artifacts:
        if row.new is not None and (move := _move(row.old.state if row.old else None, row.new.state)):
            names.setdefault(move, []).append(row.new.path if row.count == 1 else row.name)
    for move in sorted(names):
        yield f"{move}: {_named(names[move])}."


def _move(old: str | None, new: str) -> str:
    """The words for a change of state; "" for one that needs none."""
    if old == "certified" and new != old:
        return "No longer certified"
    if new == "refused" and old != new:
        return "Newly refused"
    return "Newly certified" if new == "certified" and old != new else ""
