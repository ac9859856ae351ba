"""The changes between two versions, and their effects on an app."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from onnxreg.schema.compare.json_changes import JsonChange, NamedList, compare, match, same
from onnxreg.schema.compare.severity import LISTS, SEVERE, SEVERITIES, Severity, rule_for
from onnxreg.schema.core.canonical import Count, Record, is_digest
from onnxreg.schema.core.document import Document
from onnxreg.schema.core.errors import listing
from onnxreg.schema.log.state import ArtifactStates
from onnxreg.schema.manifest.manifest import Manifest

Part = TypeVar("Part", bound=Document)


class Change(Record, frozen=True, kw_only=True):
    """One difference between two manifests.

    `kind` is `<noun>-<verb>`, such as `label-removed` or `input-renamed`. If no rule covers the field, the noun is
    `field`. `path` names the items of lists: `artifacts[onnx/float32/model.onnx].metadata.inputs[input_ids].dtype`.
    `artifact` is the name in the first brackets. `note` says what the change means for an app.
    """

    kind: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]+$")]
    path: str
    severity: Severity
    artifact: str | None = None
    old: Any  # null: the value was added
    new: Any  # null: the value was removed
    message: str
    note: str | None = None


class LocatedChange(NamedTuple):
    """A change, and the JSON difference from which it was made."""

    change: Change
    delta: JsonChange


class ManifestDiff(Record, frozen=True, kw_only=True):
    """All changes from one version to another, worst first.

    If `compatible` is true, an app that was made for the old version can run the new version without a change to the
    app.
    """

    format: Literal["onnxreg-diff"]
    format_version: Literal[1]
    compatible: bool
    summary: str
    counts: dict[Severity, Count]
    changes: tuple[Change, ...]


def diff(old: Manifest, new: Manifest) -> ManifestDiff:
    """Find every difference between two manifests."""
    return diff_of(located_changes(old, new))


def located_changes(
    old: Manifest, new: Manifest, states: tuple[ArtifactStates, ArtifactStates] = ({}, {})
) -> list[LocatedChange]:
    """Return the changes of two manifests, worst first. `states` has the states and speeds of the old and of the new
    version's artifacts after later evaluations. They replace the states in the manifests.
    """
    documents = old.to_json(), new.to_json()
    for document, side in zip(documents, states, strict=True):
        for artifact in document["artifacts"]:
            if state := side.get(artifact["path"]):
                artifact.setdefault("certification", {})["state"] = state.state
                if state.speeds:
                    artifact["latency"] = {speed.machine: speed.ratio for speed in state.speeds}
    changes = [LocatedChange(_change(delta), delta) for delta in compare(*documents, LISTS)]
    return sorted(changes, key=lambda item: (SEVERITIES.index(item[0].severity), item[0].path, item[0].kind))


def diff_of(located: Sequence[LocatedChange]) -> ManifestDiff:
    changes = tuple(change for change, _ in located)
    counts = Counter(change.severity for change in changes)
    app = "An app that runs the old version"
    if not changes:
        summary = "The two versions do not differ."
    elif counts["breaking"]:
        kinds = list(dict.fromkeys(c.kind.replace("-", " ") for c in changes if c.severity == "breaking"))
        summary = f"{app} cannot run the new one unchanged: {listing(kinds, 3)}."
    else:
        counted = ", ".join(f"{counts[severity]} {severity}" for severity in SEVERITIES if counts[severity])
        worse = ", with worse results or weaker evidence" if counts["degrading"] else ""
        summary = f"{app} can run the new one unchanged{worse}. Changes: {counted}."
    return ManifestDiff(
        format="onnxreg-diff",
        format_version=1,
        compatible=not counts["breaking"],
        summary=summary,
        counts={severity: counts[severity] for severity in SEVERITIES},
        changes=changes,
    )


def paired(
    old: Sequence[Part], new: Sequence[Part], named: NamedList
) -> dict[str, tuple[Part | None, Part | None]]:
    """Pair the items of two lists by name. A pair is (old, new), with None for an item that one list lacks.

    The names in the new list come first, in the order of that list. The names that only the old list has come last.
    """
    documents, new_documents = ([item.to_json() for item in items] for items in (old, new))
    pairs, removed, added = match(documents, new_documents, named.namers)
    before = {j: old[i] for _, i, j in pairs}
    present = sorted([(j, name) for name, _, j in pairs] + [(j, name) for name, j in added])
    return {name: (before.get(j), new[j]) for j, name in present} | {
        name: (old[i], None) for name, i in removed
    }


def _change(delta: JsonChange) -> Change:
    at, rule = delta.at, rule_for(delta.at.pattern)
    kind, severity = rule.kind(delta), rule.severity(delta)
    note = rule.note(delta) or (rule.why if severity in SEVERE else "")
    artifact = at.names[0] if at.pattern.startswith("artifacts[]") else None
    inside = f" in {_clip(artifact)}" if artifact is not None and at.pattern != "artifacts[]" else ""
    return Change(
        kind=kind,
        path=at.path,
        severity=severity,
        old=delta.old,
        new=delta.new,
        message=f"{kind.replace('-', ' ')}{inside}: {subject(delta)}" + (f" ({note})" if note else ""),
        **({} if artifact is None else {"artifact": artifact}),
        **({"note": note} if note else {}),
    )


def subject(delta: JsonChange) -> str:
    """Return the changed field with its values: `metadata.inputs[0].name "ids" -> "input_ids"`."""
    at, op, old, new = delta
    if op == "reordered":
        index = next(i for i, pair in enumerate(zip(old, new, strict=False)) if not same(*pair))
        return f"[{index}] {_show(old[index])} -> {_show(new[index])}"
    if op == "changed":
        return f"{field(delta)} {_show(old)} -> {_show(new)}"
    if at.pattern.endswith("[]"):
        return _clip(at.names[-1])
    return f"{field(delta)} {_show(old if op == 'removed' else new)}"


def field(delta: JsonChange) -> str:
    """Return the path of the changed field. For a field of an artifact, the path begins at the artifact."""
    is_inside, path = delta.at.pattern.startswith("artifacts[]."), delta.at.path
    return _clip(path.removeprefix(f"artifacts[{delta.at.names[0]}].") if is_inside else path)


def _show(value: Any) -> str:
    if isinstance(value, str) and is_digest(value):
        return value[: len("sha256:") + 12]
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.6g}"
    return _clip(json.dumps(value, ensure_ascii=False, sort_keys=True))


def _clip(text: str) -> str:
    printable = text if text.isprintable() else ascii(text)
    return printable if len(printable) <= 100 else f"{printable[:97]}..."
