"""Compare a version with its rebuild. Measured numbers may differ within a tolerance."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from onnxreg.schema.compare import json_changes
from onnxreg.schema.compare.json_changes import JsonChange
from onnxreg.schema.compare.severity import LISTS
from onnxreg.schema.core import canonical, pointer
from onnxreg.schema.core.canonical import Digest, Record
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import FileEntry, Manifest

# Gives a file's recorded and rebuilt bytes, by path; None if the recorded bytes are not available.
Contents = Callable[[str], tuple[bytes, bytes] | None]
# For recall, agreement and cosine. It is below half the loss of recall that certification allows.
RATE_TOLERANCE = 0.002
# For distances, such as the largest difference of logits: relative, but at least `RATE_TOLERANCE`.
DISTANCE_SHARE = 0.1
DISTANCES = frozenset({"atol", "least"})
# The keys of measured numbers, or of objects with one for each output. Checks and certificates have more.
_MEASURED = re.compile(r".*\.(atol|least|cosine|max_abs_diff|min_row_cosine)(\.[^.]*|\[\".*)?")
FAILED_STATES = frozenset({"missing", "extra", "differs"})

# These fields follow from a file's bytes. They are skipped: files are compared by path.
_OF_FILES = re.compile(r"(artifacts\[\]\.)?(files|digest|size|pieces)\b.*|.*\.evidence\.(artifact|report)")
_SENTENCES = re.compile(r"(.*\.)?reasons\b.*")  # they repeat measured numbers
_TENSOR_VALUE = re.compile(r"(.*)/data/[0-9]+")


class RebuiltFile(Record, frozen=True):
    """The comparison of a recorded file with the rebuilt file. `where` names the parts that differ.

    `state` is `same`, `within tolerance`, `differs`, `not promised` (it was recorded as not reproducible), `missing`
    (in the rebuild) or `extra` (only in the rebuild).
    """

    path: str
    role: str
    state: str
    recorded: Digest | None
    rebuilt: Digest | None
    where: tuple[str, ...]


class Fact(Record, frozen=True):
    """A value that the rebuild changed: the version of a tool, a check, or another field of the manifest."""

    name: str
    recorded: Any
    rebuilt: Any


class RebuildComparison(Record, frozen=True):
    """The result of the comparison of a version with its rebuild. Another version of a tool is not a mismatch, but may
    explain a mismatch.
    """

    matches: bool
    files: tuple[RebuiltFile, ...]
    tools: tuple[Fact, ...]
    checks: tuple[Fact, ...]
    fields: tuple[Fact, ...]

    @property
    def bad_files(self) -> tuple[RebuiltFile, ...]:
        return tuple(file for file in self.files if file.state in FAILED_STATES)


def compare(recorded: Manifest, rebuilt: Manifest, contents: Contents) -> RebuildComparison:
    """Compare a rebuilt version with the recorded one. `contents` reads the bytes of the files that differ."""
    files = tuple(_files(recorded, rebuilt, contents))
    facts: dict[str, list[Fact]] = {"tools": [], "checks": [], "fields": []}
    for change in json_changes.compare(_with_parent_paths(recorded), _with_parent_paths(rebuilt), LISTS):
        path, kind = change.at.path, "fields"
        if _OF_FILES.fullmatch(change.at.pattern) or _is_allowed(change):
            continue
        if change.at.pattern.startswith("recipe.tools."):
            path, kind = path.removeprefix("recipe.tools."), "tools"
        elif change.at.pattern.startswith("artifacts[].checks"):
            kind = "checks"
        facts[kind].append(Fact(name=path, recorded=change.old, rebuilt=change.new))
    is_bad = any(file.state in FAILED_STATES for file in files)
    matches = not (facts["checks"] or facts["fields"] or is_bad)
    return RebuildComparison(matches, files, *map(tuple, facts.values()))


def _with_parent_paths(manifest: Manifest) -> dict[str, Any]:
    value, paths = manifest.to_json(), {str(item.digest): item.path for item in manifest.artifacts}
    for artifact in value["artifacts"]:
        if artifact.get("parent") is not None:
            artifact["parent"] = paths[artifact["parent"]]
    return value


def _files(recorded: Manifest, rebuilt: Manifest, contents: Contents) -> Iterator[RebuiltFile]:
    before, after = ({entry.path: entry for entry in side.all_files()} for side in (recorded, rebuilt))
    loose = {artifact.path for artifact in recorded.artifacts if not artifact.reproducible}
    for path in before | after:
        old, new, where = before.get(path), after.get(path), tuple[str, ...]()
        if old is None or new is None:
            state = "extra" if old is None else "missing"
        elif old.role != new.role:
            state, where = "differs", ("role",)
        elif old.digest == new.digest:
            state = "same"
        elif path in loose:
            state = "not promised"
        else:
            where = _differing_parts(old, contents)
            state = "differs" if where else "within tolerance"
        yield RebuiltFile(
            path=path,
            role=(old or after[path]).role,
            state=state,
            recorded=old.digest if old else None,
            rebuilt=new.digest if new else None,
            where=where,
        )


def _differing_parts(entry: FileEntry, contents: Contents) -> tuple[str, ...]:
    """Return the JSON paths of the numbers that differ by more than their tolerance. If the file has no measured
    numbers, return `("bytes",)`. If the recorded file is not available, return a tuple with one sentence.
    """
    if entry.role not in ("certificate", "golden"):
        return ("bytes",)
    pair = contents(entry.path)
    if pair is None:
        return ("the recorded file is not here to compare numbers",)
    try:
        old, new = (canonical.decode(data, entry.path) for data in pair)
    except InputError:
        return ("bytes",)
    changes = json_changes.compare(old, new, {})
    is_measured = entry.role == "certificate"
    return tuple(change.at.path for change in changes if not _is_allowed(change, is_measured, old))


def _is_allowed(change: JsonChange, is_measured: bool = False, document: Any = None) -> bool:
    """True if a rebuild may have this change. A text in `reasons` may change, because such texts repeat measured
    numbers. A measured number may change within its tolerance.

    With `is_measured`, every float counts as measured. `document` has the tolerances of golden vectors.
    """
    at, op, old, new = change
    if _SENTENCES.fullmatch(at.pattern):
        return True
    sides = [side if isinstance(side, list) else [side] for side in (old, new)]
    if op != "changed" or len(sides[0]) != len(sides[1]) or not all(map(_are_numbers, sides)):
        return False
    match, pairs = _MEASURED.fullmatch(at.pattern), zip(*sides, strict=True)
    key = match[1] if match else ""
    if tensor := _TENSOR_VALUE.fullmatch(at.pointers[0]):
        limits = [pointer.find(document, f"{tensor[1]}/{limit}") for limit in ("atol", "rtol")]
        return _are_numbers(limits) and abs(new - old) <= limits[0] + limits[1] * abs(old)
    if at.pattern in ("artifacts[].checks[].value", "artifacts[].checks[].interval"):
        key = at.within[0]["metric"]
    elif not match and not (is_measured and float in map(type, sides[0] + sides[1])):
        return False
    return all(is_near(key, *pair) for pair in pairs)


def is_near(metric: str, old: float, new: float) -> bool:
    """True if two measured values differ by at most the tolerance of `metric` (a check's metric or a JSON key)."""
    is_distance = "diff" in metric or metric in DISTANCES
    return abs(old - new) <= max(RATE_TOLERANCE, DISTANCE_SHARE * abs(old) if is_distance else 0.0)


def _are_numbers(values: list[Any]) -> bool:
    return all(type(value) in (int, float) for value in values)
