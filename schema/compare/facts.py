"""Changes outside the tables of an overview: facts in a line each, and changes that follow from others, counted."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from onnxreg.schema.compare.artifact_rows import ArtifactPairs
from onnxreg.schema.compare.change_place import FACT, FOLLOWS, SECTIONS, Key
from onnxreg.schema.compare.json_changes import parsed_path
from onnxreg.schema.compare.manifests import SEVERITIES, Change
from onnxreg.schema.compare.severity import Severity, kind_words
from onnxreg.schema.core.document import Count, Document, Items
from onnxreg.schema.core.units import counted

MAX_SUBJECTS = 3
"""Changes of one kind that a fact names."""
MAX_SUBJECT_LETTERS = 40
"""Letters of each with its values, if there are several; if one is longer, the fields alone are named."""


class FactRow(Document):
    """Changes of one kind, in a line of text. `section` is the topic, such as `contract` or `licence`."""

    section: str
    severity: Severity
    kind: str
    text: str
    changes: Items[Count]


class FoldedChanges(Document):
    """Changes that follow from another; `kinds` counts them. `cause` is "" for changes without effect on an app."""

    cause: str
    kinds: dict[str, Count]
    changes: Items[Count]


def fact_rows(
    changes: Sequence[Change], by_key: Mapping[Key, Sequence[int]], pairs: ArtifactPairs
) -> list[FactRow]:
    """The facts, the worst first."""
    groups: dict[tuple[str, str, Severity], list[int]] = {}
    for (shown, *names), positions in by_key.items():
        for position in positions if shown == FACT else ():
            change = changes[position]
            groups.setdefault((names[0], change.kind, change.severity), []).append(position)
    rows = [
        FactRow(
            section=section,
            severity=severity,
            kind=kind,
            text=_text([changes[position] for position in positions], pairs),
            changes=tuple(positions),
        )
        for (section, kind, severity), positions in groups.items()
    ]
    return sorted(
        rows, key=lambda row: (SEVERITIES.index(row.severity), SECTIONS.index(row.section), row.kind)
    )


def folded_changes(changes: Sequence[Change], by_key: Mapping[Key, Sequence[int]]) -> Iterator[FoldedChanges]:
    """The groups of changes that follow from others, the largest first."""
    groups = {names[0]: positions for (shown, *names), positions in by_key.items() if shown == FOLLOWS}
    for cause, positions in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        kinds = Counter(changes[position].kind for position in positions)
        yield FoldedChanges(cause=cause, kinds=dict(sorted(kinds.items())), changes=tuple(positions))


def _text(changes: Sequence[Change], pairs: ArtifactPairs) -> str:
    """`opset added in 2 artifacts: opset_imports["com.microsoft"] 1 (an older runtime may refuse it)`"""
    first = changes[0]
    artifacts = list(dict.fromkeys(change.artifact for change in changes if change.artifact))
    subjects = dict.fromkeys(_subject(change, pairs) for change in changes)
    if len(subjects) > 1 and max(map(len, subjects)) > MAX_SUBJECT_LETTERS:
        subjects = dict.fromkeys(map(_field, changes))
    listed = list(subjects)[:MAX_SUBJECTS]
    more = f" and {len(subjects) - MAX_SUBJECTS} more" if len(subjects) > MAX_SUBJECTS else ""
    where = (
        f" in {_file(artifacts[0], pairs) if len(artifacts) == 1 else counted(len(artifacts), 'artifact')}"
    )
    note = f" ({first.note})" if first.note else ""
    return f"{kind_words(first.kind)}{where if artifacts else ''}: {', '.join(listed)}{more}{note}"


def _subject(change: Change, pairs: ArtifactPairs) -> str:
    """The changed thing with its values: of a companion its role and path, of a tensor its shapes, of contrib operators
    their names."""
    pattern, names = parsed_path(change.path)
    if pattern.startswith("files[]"):
        return names[0]
    if change.kind.endswith("-reshaped"):
        return _shapes(pattern, names, pairs) or change.subject
    if pattern == "artifacts[].contrib":
        sides = [side for side in (change.old, change.new) if isinstance(side, list)]
        return " -> ".join(", ".join(map(str, side)) for side in sides)
    return change.subject


def _shapes(pattern: str, names: Sequence[str], pairs: ArtifactPairs) -> str:
    """`ids [batch, 3] -> [batch, 5]`; "" for a tensor whose name changed too."""
    sides = [artifact.metadata for artifact in pairs[names[0]] if artifact]
    is_input = pattern.startswith("artifacts[].metadata.inputs")
    specs = [spec for side in sides for spec in (side.inputs if is_input else side.outputs)]
    shapes = [spec.shape_text for spec in specs if spec.name == names[1]]
    return f"{names[1]} {' -> '.join(shapes)}" if len(shapes) == 2 else ""


def _field(change: Change) -> str:
    """The path of a field inside its artifact; of an item of a list its name."""
    pattern, names = parsed_path(change.path)
    return names[-1] if pattern.endswith("[]") else change.path.removeprefix(f"artifacts[{change.artifact}].")


def _file(name: str, pairs: ArtifactPairs) -> str:
    """The path of an artifact in the new version, or in the old one if only that has it."""
    old, new = pairs[name]
    artifact = new or old
    assert artifact is not None, "a pair has at least one artifact"
    return artifact.path
