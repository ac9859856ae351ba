"""Changes between two versions of a model, and their effect on an app."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

from pydantic import Field

from onnxreg.schema.compare.json_changes import JsonChange, Matched, NamedItem, Tables, compare, match, same
from onnxreg.schema.compare.severity import TABLES, DiffRule, Severity, by_member, kind_words, rule_for
from onnxreg.schema.core.document import Count, Document, First, Items
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.manifest.vocabulary import LOSS

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""From worst to least: breaks an app, worse results or weaker evidence, worth knowing, without effect."""

Places = tuple[str | None, str | None]
"""JSON pointers (RFC 6901) of a value before and after; None if it is not there."""
_MEMBER = re.compile(r"model_family\.members\[([^\]]+)\]")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Change(Document):
    """One difference.

    `kind` is `<noun>-<verb>`. The verb is `added`, `removed`, `reordered` or `changed` (for a tensor also
    `renamed`, `retyped`, `reshaped`); the noun of a field without a rule is `field`. `path` leads to the
    field, with a list's item by its name:
    `artifacts[onnx/float32/model.onnx].metadata.inputs[input_ids].dtype`. `artifact` is the name in the first
    brackets, for changes of an artifact. `old` is null if added, `new` if removed. `note` states the
    consequence, if it is known; the message ends in it.
    """

    kind: str = Field(pattern=r"^[a-z0-9-]+$")
    path: str
    severity: Severity
    artifact: str | None = None
    old: Any
    new: Any
    message: str
    note: str | None = None

    @property
    def subject(self) -> str:
        """The message without its kind, artifact and note: `license "MIT"`."""
        where = "" if self.artifact is None else f" in {_clip(self.artifact)}"
        head = self.kind.replace("-", " ")
        text = self.message.removeprefix(head).removeprefix(where).removeprefix(": ")
        return text.removesuffix(f" ({self.note})") if self.note else text


class ManifestDiff(Document):
    """All changes, worst first. `compatible`: an app that ran the old version can run the new one unchanged.

    `members`, for two model families: the kinds of changes of each changed member, by its name.
    """

    format: Literal["onnxreg-diff"]
    format_version: First
    compatible: bool
    summary: str
    counts: dict[Severity, Count]
    changes: Items[Change]
    members: dict[str, list[str]] | None = None


def diff(old: Manifest, new: Manifest) -> ManifestDiff:
    """Every difference between two manifests.

    Laws: `diff(a, a)` has no changes; manifests with different canonical bytes have at least one. `diff(b, a)` has
    the changes of `diff(a, b)` with `added` and `removed`, `old` and `new` exchanged; path and artifact are equal,
    severity and message are of the direction.
    """
    changes = [change for change, _ in located_changes(old, new)]
    counts = Counter(change.severity for change in changes)
    return ManifestDiff(
        format="onnxreg-diff",
        format_version=1,
        compatible=not counts["breaking"],
        summary=_summary(changes, counts),
        counts={severity: counts[severity] for severity in SEVERITIES},
        changes=tuple(changes),
        **({"members": _members(changes, old, new)} if old.model_family and new.model_family else {}),
    )


def located_changes(old: Manifest, new: Manifest) -> list[tuple[Change, Places]]:
    """The changes of `diff`, each with the JSON pointers of its old and new value in the two manifests."""
    deltas = compare(old.to_json(), new.to_json(), _tables(old, new))
    changes = [(_change(_with_suites(delta, old, new)), delta.places) for delta in deltas]
    return sorted(changes, key=lambda pair: (SEVERITIES.index(pair[0].severity), pair[0].path, pair[0].kind))


def _with_suites(delta: JsonChange, old: Manifest, new: Manifest) -> JsonChange:
    """The mirrored loss with the suites that it was measured on, if each side has one."""
    if delta.pattern != LOSS:
        return delta
    sides = [
        {a.certification.evidence.suite for a in side.artifacts if a.certification.evidence}
        for side in (old, new)
    ]
    if not all(len(suites - {None}) == 1 for suites in sides):
        return delta
    before, after = ({"dataset": str(next(iter(suites - {None})))} for suites in sides)
    return replace(delta, within=(before, after))


def _members(changes: Sequence[Change], old: Manifest, new: Manifest) -> dict[str, list[str]]:
    """The kinds of changes by member, in the order of names: those of its entry in the family, of its artifacts, and of routes
    from or to it."""
    owners = _owners(old, new)
    kinds: dict[str, list[str]] = {}
    for change in changes:
        for member in _touched(change, owners):
            if change.kind not in kinds.setdefault(member, []):
                kinds[member].append(change.kind)
    return {member: kinds[member] for member in sorted(kinds)}


def _touched(change: Change, owners: Mapping[str, set[str]]) -> set[str]:
    if entry := _MEMBER.match(change.path):
        return {entry[1]}
    if change.path.startswith("model_family.routing"):
        return {head for head in (change.old, change.new) if isinstance(head, str)}
    return owners.get(change.artifact or "", set())


def _owners(old: Manifest, new: Manifest) -> dict[str, set[str]]:
    """The member of each artifact, by the artifact's name in the changes' paths; two members if it moved."""
    pairs, removed, added = _matched(old, new)
    before, after = (_members_by_path(side) for side in (old, new))
    members: dict[str, set[str]] = {}
    for name, i in [*((name, i) for name, i, _ in pairs), *removed]:
        members.setdefault(name, set()).add(before[old.artifacts[i].path])
    for name, j in [*((name, j) for name, _, j in pairs), *added]:
        members.setdefault(name, set()).add(after[new.artifacts[j].path])
    return members


def _members_by_path(side: Manifest) -> dict[str, str]:
    members = side.model_family.members if side.model_family else ()
    return {path: member.name for member in members for path in member.artifacts}


def _tables(old: Manifest, new: Manifest) -> Tables:
    """The tables for two families: an artifact whose path changed is matched only by member, format and precision."""
    if old.model_family is None or new.model_family is None:
        return TABLES
    before, after = _members_by_path(old), _members_by_path(new)
    owners = {path: name for path, name in (before | after).items() if before.get(path, name) == name}
    by_path, _, by_format = TABLES.lists["artifacts"].namers
    artifact_items = NamedItem((by_path, partial(by_member, owners), by_format))
    return replace(TABLES, lists={**TABLES.lists, "artifacts": artifact_items})


def _matched(old: Manifest, new: Manifest) -> Matched:
    before, after = ([artifact.to_json() for artifact in side.artifacts] for side in (old, new))
    return match(before, after, _tables(old, new).lists["artifacts"].namers)


def artifact_pairs(old: Manifest, new: Manifest) -> list[tuple[str, Artifact, Artifact]]:
    """The matched artifacts of both, each by its name in the changes' paths."""
    return [(name, old.artifacts[i], new.artifacts[j]) for name, i, j in _matched(old, new)[0]]


def all_artifacts(old: Manifest, new: Manifest) -> list[tuple[str, Artifact | None, Artifact | None]]:
    """Every artifact by its name in the changes' paths; None on the side that lacks it. In the order of the new
    manifest, then those that were removed."""
    pairs, removed, added = _matched(old, new)
    positions = [(name, i, j) for name, i, j in pairs] + [(name, None, j) for name, j in added]
    present = sorted(positions, key=lambda position: position[2])
    return [
        *((name, None if i is None else old.artifacts[i], new.artifacts[j]) for name, i, j in present),
        *((name, old.artifacts[i], None) for name, i in removed),
    ]


def _change(delta: JsonChange) -> Change:
    rule = rule_for(delta.pattern)
    note = rule.remark(delta)
    return Change(
        kind=rule.kind(delta),
        path=delta.path,
        severity=rule.severity(delta),
        old=delta.old,
        new=delta.new,
        message=_message(delta, rule) + (f" ({note})" if note else ""),
        **({"artifact": delta.names[0]} if delta.pattern.startswith("artifacts[]") else {}),
        **({"note": note} if note else {}),
    )


def _message(delta: JsonChange, rule: DiffRule) -> str:
    """`input renamed in onnx/float32/model.onnx: "ids" -> "input_ids"`"""
    inside = delta.pattern.startswith("artifacts[]") and delta.pattern != "artifacts[]"
    kind = rule.kind(delta).replace("-", " ") + (f" in {_clip(delta.names[0])}" if inside else "")
    if delta.op == "reordered":
        index = next(i for i, pair in enumerate(zip(delta.old, delta.new, strict=False)) if not same(*pair))
        return f"{kind}: [{index}] {_show(delta.old[index])} -> {_show(delta.new[index])}"
    if delta.pattern.endswith("[]") and delta.op != "changed":
        return f"{kind}: {_clip(delta.names[-1])}"
    path = delta.path.removeprefix(f"artifacts[{delta.names[0]}].") if inside else delta.path
    if delta.op == "changed":
        return f"{kind}: {_clip(path)} {_show(delta.old)} -> {_show(delta.new)}"
    return f"{kind}: {_clip(path)} {_show(delta.old if delta.op == 'removed' else delta.new)}"


def _show(value: Any) -> str:
    """A value for people: digests and numbers shortened; a change holds the exact ones."""
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return value[: len("sha256:") + 12]
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.6g}"
    return _clip(json.dumps(value, ensure_ascii=False, sort_keys=True))


def _clip(text: str) -> str:
    """Short, and without what could rewrite a terminal."""
    printable = text if text.isprintable() else ascii(text)
    return printable if len(printable) <= 100 else f"{printable[:97]}..."


def _summary(changes: Sequence[Change], counts: Counter[Severity]) -> str:
    app = "An app that runs the old version"
    if not changes:
        return "The two versions do not differ."
    if counts["breaking"]:
        kinds = list(dict.fromkeys(kind_words(c.kind) for c in changes if c.severity == "breaking"))
        more = f" and {len(kinds) - 3} more" if len(kinds) > 3 else ""
        return f"{app} cannot run the new one unchanged: {', '.join(kinds[:3])}{more}."
    if counts["degrading"]:
        app_can = f"{app} can run the new one unchanged, with worse results or weaker evidence."
    else:
        app_can = f"{app} can run the new one unchanged."
    return f"{app_can} Changes: {_counted(counts)}."


def _counted(counts: Counter[Severity]) -> str:
    return ", ".join(f"{counts[severity]} {severity}" for severity in SEVERITIES if counts[severity])
