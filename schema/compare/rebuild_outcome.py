"""Comparison of a version with its rebuild: files by digest, measured numbers by tolerance.

Pure: the two manifests decide, and of the few files that hold measured numbers their contents, if digests differ.
"""

from collections.abc import Callable, Iterator
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Document, Items
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest
from onnxreg.schema.manifest.parts import Check

EVIDENCE = ("certificate", "config", "golden", "report")
"""Roles of the JSON files that hold measured numbers."""
FAILED_STATES = frozenset({"missing", "extra", "differs"})
BYTES = ("digest", "size", "pieces")
"""The keys that follow from a file's bytes."""

Contents = Callable[[str], tuple[bytes, bytes] | None]
"""The bytes of a file as recorded and as rebuilt; None if the recorded ones are not at hand."""
RATE_TOLERANCE = 0.002
"""Rates (recall, agreement, cosine) may differ by this: less than half of the recall that certification allows to lose."""
DISTANCE_SHARE = 0.1
"""Distances (the largest difference of logits and the like) may differ by this share, or by `RATE_TOLERANCE`."""
MEASURED_KEYS = frozenset({"atol", "least", "min_row_cosine", "quant_recall_delta"})
"""Keys whose numbers are measured, at any depth."""
DISTANCE_KEYS = frozenset({"atol", "least"})
SKIPPED_KEYS = frozenset({"reasons"})
"""Sentences that repeat numbers, which are compared themselves."""


class RebuiltFile(Document):
    """A file of the version. States: same, within tolerance, not promised (recorded as not reproducible), differs,
    missing (recorded, not rebuilt), extra (rebuilt, not recorded)."""

    path: str
    role: str
    state: str
    recorded: Digest | None
    rebuilt: Digest | None
    where: Items[str]


class Fact(Document):
    """Something else that was recorded and came out otherwise: a tool's version, a check, a field of the manifest."""

    name: str
    recorded: Any
    rebuilt: Any


class RebuildComparison(Document):
    """The outcome of a comparison. Other tools are not a difference by themselves: they may explain one."""

    matches: bool
    files: Items[RebuiltFile]
    tools: Items[Fact]
    checks: Items[Fact]
    fields: Items[Fact]

    @property
    def bad_files(self) -> tuple[RebuiltFile, ...]:
        return tuple(file for file in self.files if file.state in FAILED_STATES)


def compare(recorded: Manifest, rebuilt: Manifest, contents: Contents) -> RebuildComparison:
    """Hold a rebuilt version against the recorded one."""
    tools = _facts(_tools(recorded), _tools(rebuilt), lambda old, new: bool(old == new))
    checks = _facts(_checks(recorded), _checks(rebuilt), _is_near_check)
    changed = differences(_rest(recorded), _rest(rebuilt))
    fields = tuple(Fact(name=at, recorded=old, rebuilt=new) for at, old, new in changed)
    files = tuple(_files(recorded, rebuilt, contents))
    is_bad = any(file.state in FAILED_STATES for file in files)
    return RebuildComparison(
        matches=not (checks or fields or is_bad), files=files, tools=tools, checks=checks, fields=fields
    )


def _tools(manifest: Manifest) -> dict[str, Any]:
    return dict(manifest.recipe.tools) if manifest.recipe else {}


def _checks(manifest: Manifest) -> dict[str, Any]:
    checks = ((item, check) for item in manifest.artifacts for check in item.checks)
    return {f"{_key(item)} {check.name} {check.metric}": check for item, check in checks}


def _facts(old: dict[str, Any], new: dict[str, Any], is_same: Callable[[Any, Any], bool]) -> tuple[Fact, ...]:
    """The entries that differ, or that one side lacks."""
    return tuple(
        Fact(name=name, recorded=_json(old.get(name)), rebuilt=_json(new.get(name)))
        for name in sorted(old | new)
        if not (name in old and name in new and is_same(old[name], new[name]))
    )


def _json(value: Any) -> Any:
    return value.to_json() if isinstance(value, Document) else value


def _is_near_check(old: Check, new: Check) -> bool:
    """True if only value and interval differ, each within the tolerance of the metric."""
    exact = [check.model_copy(update={"value": None, "interval": None}) for check in (old, new)]
    figures = [[check.value, *(check.interval or ())] for check in (old, new)]
    return (
        exact[0] == exact[1]
        and len(figures[0]) == len(figures[1])
        and all(is_near(old.metric, *pair) for pair in zip(*figures, strict=True))
    )


def _files(recorded: Manifest, rebuilt: Manifest, contents: Contents) -> Iterator[RebuiltFile]:
    before, after = ({entry.path: entry for entry in side.all_files()} for side in (recorded, rebuilt))
    loose = {artifact.path for artifact in recorded.artifacts if not artifact.reproducible}
    for path in before | after:
        old, new = before.get(path), after.get(path)
        where: tuple[str, ...] = ()
        if old is None or new is None:
            state = "extra" if old is None else "missing"
        elif where := tuple(name for name, _, _ in differences(_without_bytes(old), _without_bytes(new))):
            state = "differs"
        elif old.digest == new.digest:
            state = "same"
        elif path in loose:
            state = "not promised"
        else:
            where = _differing_parts(old, contents)
            state = "differs" if where else "within tolerance"
        yield RebuiltFile(
            path=path,
            role=(before.get(path) or after[path]).role,
            state=state,
            recorded=old.digest if old else None,
            rebuilt=new.digest if new else None,
            where=where,
        )


def _without_bytes(entry: FileEntry) -> dict[str, Any]:
    return {key: value for key, value in entry.to_json().items() if key not in BYTES}


def _differing_parts(entry: FileEntry, contents: Contents) -> tuple[str, ...]:
    """The parts of two different files that differ beyond the tolerance; all, unless they hold measured numbers."""
    if entry.role not in EVIDENCE:
        return ("bytes",)
    pair = contents(entry.path)
    if pair is None:
        return ("the recorded file is not here to compare numbers",)
    try:
        old, new = (canonical.decode(data, entry.path) for data in pair)
    except InputError:
        return ("bytes",)
    metric = "recall" if entry.role in ("certificate", "report") else ""
    return tuple(name for name, _, _ in differences(old, new, metric))


def _key(artifact: Artifact) -> str:
    return f"{artifact.format}/{artifact.precision}/{artifact.path}"


def _rest(manifest: Manifest) -> dict[str, Any]:
    """The rest of a manifest, without digests, checks and tools: contracts, operators, labels, steps, verdicts."""
    value = manifest.to_json()
    paths = {artifact.digest: artifact.path for artifact in manifest.artifacts}
    artifacts = {}
    for artifact, document in zip(manifest.artifacts, value.pop("artifacts"), strict=True):
        for key in (*BYTES, "files", "checks"):
            document.pop(key, None)
        for key in ("artifact", "report"):
            document.get("certification", {}).get("evidence", {}).pop(key, None)
        document["parent"] = None if artifact.parent is None else paths[artifact.parent]
        artifacts[_key(artifact)] = document
    value.pop("files", None)
    if "recipe" in value:
        value["recipe"].pop("tools")
    return {**value, "artifacts": artifacts}


def is_near(metric: str, old: float | None, new: float | None) -> bool:
    """True if two values of a metric are the same within tolerance."""
    if old is None or new is None:
        return old is new
    share = DISTANCE_SHARE * abs(old) if "diff" in metric or metric in DISTANCE_KEYS else 0.0
    return abs(old - new) <= max(RATE_TOLERANCE, share)


def differences(old: Any, new: Any, metric: str = "", at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path and values of the differences of two JSON values: measured numbers only beyond a tolerance, others always.

    With a `metric` every number that is not whole in both is measured by it; without, those under the keys `MEASURED_KEYS`. The
    `data` of a tensor is compared by its own `atol` and `rtol` (docs/golden.md), if it has them.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        if {"data", "atol", "rtol"} <= old.keys() & new.keys():
            if not _are_close(old, new):
                yield f"{at}.data", None, None
            return
        for name in old | new:
            if name not in SKIPPED_KEYS:
                inner = name if name in MEASURED_KEYS else metric
                yield from differences(old.get(name), new.get(name), inner, f"{at}.{name}" if at else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, metric, f"{at}[{number}]")
    elif metric and _are_numbers(old, new) and float in (type(old), type(new)):
        if not is_near(metric, old, new):
            yield at, old, new
    elif old != new or type(old) is not type(new):
        yield at, old, new


def _are_numbers(*values: Any) -> bool:
    return all(type(value) in (int, float) for value in values)


def _are_close(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """True if two tensors have one shape, type and `rtol`, and are near by the recorded `atol`."""
    before, after, atol, rtol = old["data"], new["data"], old["atol"], old["rtol"]
    if any(old.get(key) != new.get(key) for key in ("dtype", "shape", "rtol")):
        return False
    if not (isinstance(before, list) and isinstance(after, list) and len(before) == len(after)):
        return False
    return _are_numbers(atol, rtol, *before, *after) and all(
        abs(b - a) <= atol + rtol * abs(a) for a, b in zip(before, after, strict=True)
    )
