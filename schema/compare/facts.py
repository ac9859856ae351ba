"""Changes outside the tables of an overview: facts in a line each, and changes that follow from others, counted."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from onnxreg.schema.compare.change_place import FACT, FOLLOWS, SECTIONS, Key
from onnxreg.schema.compare.json_changes import parsed_path
from onnxreg.schema.compare.manifests import SEVERITIES, Change
from onnxreg.schema.compare.severity import Severity
from onnxreg.schema.core.document import Count, Document, Items
from onnxreg.schema.core.numbers import counted

MAX_SUBJECTS = 3
"""Changes of one kind that a fact names."""
MAX_SUBJECT_LETTERS = 40
"""Letters of each, if there are several."""


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


def fact_rows(changes: Sequence[Change], by_key: Mapping[Key, Sequence[int]]) -> list[FactRow]:
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
            text=_text([changes[position] for position in positions]),
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


def _text(changes: Sequence[Change]) -> str:
    """`opset added in 2 artifacts: opset_imports["com.microsoft"] 1 (an older runtime may refuse it)`"""
    first = changes[0]
    artifacts = list(dict.fromkeys(change.artifact for change in changes if change.artifact))
    subjects = list(dict.fromkeys(map(_subject, changes)))
    where = f" in {_file(artifacts[0]) if len(artifacts) == 1 else counted(len(artifacts), 'artifact')}"
    listed = subjects[:MAX_SUBJECTS]
    if len(subjects) > 1:
        listed = [_clipped(subject) for subject in listed]
    more = f" and {len(subjects) - MAX_SUBJECTS} more" if len(subjects) > MAX_SUBJECTS else ""
    note = f" ({first.note})" if first.note else ""
    return f"{first.kind.replace('-', ' ')}{where if artifacts else ''}: {', '.join(listed)}{more}{note}"


def _subject(change: Change) -> str:
    """The changed thing: of a companion its role and path, else the field with both values."""
    pattern, names = parsed_path(change.path)
    return names[0] if pattern.startswith("files[]") else change.subject


def _file(artifact: str) -> str:
    """The path of an artifact, whose name is `<format>/<precision>/<path>`."""
    return artifact.split("/", 2)[-1]


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_SUBJECT_LETTERS else f"{text[: MAX_SUBJECT_LETTERS - 3]}..."
