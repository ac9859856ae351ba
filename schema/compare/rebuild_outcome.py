"""Comparison of a version with its rebuild: files by digest, measured numbers by tolerance.

Pure: the two manifests decide, and of the few files that hold measured numbers their contents, if digests differ.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest

EVIDENCE = ("certificate", "config", "golden", "report")
"""Roles of the JSON files that hold measured numbers."""
MISSING, EXTRA, DIFFERS = "missing", "extra", "differs"
FAILED_STATES = frozenset({MISSING, EXTRA, DIFFERS})
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

ValueDifference = tuple[str, Any, Any]
"""A path, and the two values; None for a missing one."""


@dataclass(frozen=True)
class RebuiltFile:
    """A file of the version. States: same, within tolerance, not promised (recorded as not reproducible), differs,
    missing (recorded, not rebuilt), extra (rebuilt, not recorded)."""

    path: str
    role: str
    state: str
    recorded: Digest | None
    rebuilt: Digest | None
    where: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        digests = {"recorded": self.recorded, "rebuilt": self.rebuilt}
        digest_texts = {key: None if digest is None else str(digest) for key, digest in digests.items()}
        return {
            "path": self.path,
            "role": self.role,
            "state": self.state,
            **digest_texts,
            "where": list(self.where),
        }


@dataclass(frozen=True)
class Fact:
    """Something else that was recorded and came out otherwise: a tool's version, a check, a field of the manifest."""

    name: str
    recorded: Any
    rebuilt: Any

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "recorded": self.recorded, "rebuilt": self.rebuilt}


@dataclass(frozen=True)
class RebuildComparison:
    """The outcome of a comparison. Other tools are not a difference by themselves: they may explain one."""

    files: tuple[RebuiltFile, ...]
    tools: tuple[Fact, ...]
    checks: tuple[Fact, ...]
    fields: tuple[Fact, ...]

    @property
    def bad_files(self) -> tuple[RebuiltFile, ...]:
        return tuple(file for file in self.files if file.state in FAILED_STATES)

    @property
    def matches(self) -> bool:
        return not (self.bad_files or self.checks or self.fields)

    def to_json(self) -> dict[str, Any]:
        facts = {"tools": self.tools, "checks": self.checks, "fields": self.fields}
        fact_documents = {name: [fact.to_json() for fact in items] for name, items in facts.items()}
        return {"matches": self.matches, "files": [file.to_json() for file in self.files], **fact_documents}


def compare(recorded: Manifest, rebuilt: Manifest, contents: Contents) -> RebuildComparison:
    """Hold a rebuilt version against the recorded one."""
    tools = [dict(manifest.recipe.tools) if manifest.recipe else {} for manifest in (recorded, rebuilt)]
    changed = (
        Fact(name, tools[0].get(name), tools[1].get(name))
        for name in sorted(tools[0].keys() | tools[1].keys())
        if tools[0].get(name) != tools[1].get(name)
    )
    fields = (Fact(*difference) for difference in differences(_rest(recorded), _rest(rebuilt)))
    return RebuildComparison(
        tuple(_files(recorded, rebuilt, contents)),
        tuple(changed),
        tuple(_checks(recorded, rebuilt)),
        tuple(fields),
    )


def _files(recorded: Manifest, rebuilt: Manifest, contents: Contents) -> Iterator[RebuiltFile]:
    before, after = (
        {entry.path: entry for entry in manifest.all_files()} for manifest in (recorded, rebuilt)
    )
    loose = {artifact.path for artifact in recorded.artifacts if not artifact.reproducible}
    for path in dict.fromkeys([*before, *after]):
        old, new = before.get(path), after.get(path)
        if old is None or new is None:
            role = (old or new).role  # type: ignore[union-attr]  # one of them has the path
            state = EXTRA if old is None else MISSING
            yield RebuiltFile(path, role, state, old.digest if old else None, new.digest if new else None)
            continue
        about, rebuilt_about = (
            {key: value for key, value in entry.to_json().items() if key not in BYTES} for entry in (old, new)
        )
        if differing := tuple(name for name, _, _ in differences(about, rebuilt_about)):
            state = DIFFERS
        elif old.digest == new.digest:
            state = "same"
        elif path in loose:
            state = "not promised"
        else:
            differing = _differing_parts(old, contents)
            state = DIFFERS if differing else "within tolerance"
        yield RebuiltFile(path, old.role, state, old.digest, new.digest, differing)


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


def _checks(recorded: Manifest, rebuilt: Manifest) -> Iterator[Fact]:
    """Checks whose verdict is another, or whose value or interval is beyond the tolerance of its metric."""
    before, after = (
        {
            (_key(item), check.name, check.metric): check
            for item in manifest.artifacts
            for check in item.checks
        }
        for manifest in (recorded, rebuilt)
    )
    for key in dict.fromkeys([*before, *after]):
        old, new = (None if check is None else check.to_json() for check in (before.get(key), after.get(key)))
        figures = [
            [] if check is None else [check.pop("value", None), *(check.pop("interval", None) or ())]
            for check in (dict(old or {}), dict(new or {}))
        ]
        exact = [
            {k: v for k, v in (check or {}).items() if k not in ("value", "interval")} for check in (old, new)
        ]
        is_near_enough = len(figures[0]) == len(figures[1]) and all(
            is_near(key[2], *pair) for pair in zip(*figures, strict=True)
        )
        if old is None or new is None or exact[0] != exact[1] or not is_near_enough:
            yield Fact(" ".join(key), old, new)


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


def differences(old: Any, new: Any, metric: str = "", at: str = "") -> Iterator[ValueDifference]:
    """Yield the differences of two JSON values: measured numbers only beyond a tolerance, other values always.

    With a `metric` every number that is not whole in both is measured by it; without, those under the keys `MEASURED_KEYS`. The
    `data` of a tensor is compared by its own `atol` and `rtol` (docs/golden.md), if it has them.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        if {"data", "atol", "rtol"} <= old.keys() & new.keys():
            yield from _tensors(old, new, at)
            return
        for name in dict.fromkeys([*old, *new]):
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


def _tensors(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[ValueDifference]:
    """Tensors of one shape, type and `rtol`; the recorded `atol` counts."""
    keys = {"dtype", "shape", "rtol"}
    same = all(old.get(key) == new.get(key) for key in keys)
    if not same or not _are_close(old["data"], new["data"], old["atol"], old["rtol"]):
        yield f"{at}.data", None, None


def _are_close(old: Any, new: Any, atol: Any, rtol: Any) -> bool:
    lists = isinstance(old, list) and isinstance(new, list) and len(old) == len(new)
    if not lists or not _are_numbers(atol, rtol, *old, *new):
        return False
    return all(abs(b - a) <= atol + rtol * abs(a) for a, b in zip(old, new, strict=True))
