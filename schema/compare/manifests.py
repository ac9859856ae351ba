"""Changes between two versions of a model, and their effect on an app."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import Field

from onnxreg.schema.compare.json_changes import JsonChange, NamedList, compare, match, same
from onnxreg.schema.compare.severity import LISTS, SEVERITIES, Severity, artifact_list, kind_words, rule_for
from onnxreg.schema.core.document import Count, Document, First, Items
from onnxreg.schema.manifest.manifest import Artifact, Manifest

Part = TypeVar("Part", bound=Document)
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


class LocatedChange(NamedTuple):
    """A change, and the difference of the two JSON values that it is about."""

    change: Change
    delta: JsonChange


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
    return diff_of(located_changes(old, new), old, new)


def located_changes(old: Manifest, new: Manifest) -> list[LocatedChange]:
    """The changes of `diff`, each with its places in the two manifests."""
    lists = {**LISTS, "artifacts": artifact_list(_owners(old, new))}
    changes = [LocatedChange(_change(delta), delta) for delta in compare(old.to_json(), new.to_json(), lists)]
    return sorted(changes, key=lambda item: (SEVERITIES.index(item[0].severity), item[0].path, item[0].kind))


def diff_of(located: Sequence[LocatedChange], old: Manifest, new: Manifest) -> ManifestDiff:
    """The document of these changes."""
    changes = tuple(change for change, _ in located)
    counts = Counter(change.severity for change in changes)
    return ManifestDiff(
        format="onnxreg-diff",
        format_version=1,
        compatible=not counts["breaking"],
        summary=_summary(changes, counts),
        counts={severity: counts[severity] for severity in SEVERITIES},
        changes=changes,
        **({"members": _members(located, old, new)} if old.model_family and new.model_family else {}),
    )


def artifact_pairs(old: Manifest, new: Manifest) -> dict[str, tuple[Artifact | None, Artifact | None]]:
    """The artifacts of both by their names in the changes' paths, see `paired`."""
    return paired(old.artifacts, new.artifacts, artifact_list(_owners(old, new)))


def paired(
    old: Sequence[Part], new: Sequence[Part], named: NamedList
) -> dict[str, tuple[Part | None, Part | None]]:
    """The items of two lists by name, in the order of the new one, then the removed ones; None on a side that lacks it."""
    documents, new_documents = ([item.to_json() for item in items] for items in (old, new))
    pairs, removed, added = match(documents, new_documents, named.namers)
    before = {j: old[i] for _, i, j in pairs}
    present = sorted([(j, name) for name, _, j in pairs] + [(j, name) for name, j in added])
    return {name: (before.get(j), new[j]) for j, name in present} | {
        name: (old[i], None) for name, i in removed
    }


def _owners(old: Manifest, new: Manifest) -> dict[str, str] | None:
    """The member of each artifact by its path, unless it moved; None if a side is not a family."""
    if old.model_family is None or new.model_family is None:
        return None
    before, after = old.members, new.members
    return {path: name for path, name in (before | after).items() if before.get(path, name) == name}


def _members(located: Sequence[LocatedChange], old: Manifest, new: Manifest) -> dict[str, list[str]]:
    """The kinds of changes by member, in the order of names: those of its entry in the family, of its artifacts, and of
    routes from or to it."""
    members = old.members, new.members
    owners = {
        name: {by_path[item.path] for by_path, item in zip(members, pair, strict=True) if item}
        for name, pair in artifact_pairs(old, new).items()
    }
    kinds: dict[str, dict[str, None]] = {}
    for change, delta in located:
        if delta.at.pattern.startswith("model_family.members[]"):
            touched = {delta.at.names[0]}
        elif delta.at.pattern.startswith("model_family.routing"):
            touched = {head for head in (change.old, change.new) if isinstance(head, str)}
        else:
            touched = owners.get(change.artifact or "", set())
        for member in touched:
            kinds.setdefault(member, {})[change.kind] = None
    return {member: list(kinds[member]) for member in sorted(kinds)}


def _change(delta: JsonChange) -> Change:
    at, rule = delta.at, rule_for(delta.at.pattern)
    kind, note = rule.kind(delta), rule.remark(delta)
    artifact = at.names[0] if at.pattern.startswith("artifacts[]") else None
    inside = f" in {_clip(artifact)}" if artifact is not None and at.pattern != "artifacts[]" else ""
    return Change(
        kind=kind,
        path=at.path,
        severity=rule.severity(delta),
        old=delta.old,
        new=delta.new,
        message=f"{kind.replace('-', ' ')}{inside}: {subject(delta)}" + (f" ({note})" if note else ""),
        **({} if artifact is None else {"artifact": artifact}),
        **({"note": note} if note else {}),
    )


def subject(delta: JsonChange) -> str:
    """The changed thing with its values: `metadata.inputs[0].name "ids" -> "input_ids"`."""
    at, op, old, new = delta
    if op == "reordered":
        index = next(i for i, pair in enumerate(zip(old, new, strict=False)) if not same(*pair))
        return f"[{index}] {_show(old[index])} -> {_show(new[index])}"
    if op == "changed":
        return f"{_clip(field(delta))} {_show(old)} -> {_show(new)}"
    if at.pattern.endswith("[]"):
        return _clip(at.names[-1])
    return f"{_clip(field(delta))} {_show(old if op == 'removed' else new)}"


def field(delta: JsonChange) -> str:
    """The path of a field, inside its artifact if it has one."""
    is_inside = delta.at.pattern.startswith("artifacts[].")
    return delta.at.path.removeprefix(f"artifacts[{delta.at.names[0]}].") if is_inside else delta.at.path


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
    counted = ", ".join(f"{counts[severity]} {severity}" for severity in SEVERITIES if counts[severity])
    worse = ", with worse results or weaker evidence" if counts["degrading"] else ""
    return f"{app} can run the new one unchanged{worse}. Changes: {counted}."
