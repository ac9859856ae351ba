"""Comparison of a version with its rebuild: files by digest, measured numbers by tolerance.

Pure: the two manifests decide, and of the few files that hold measured numbers their contents, if digests differ.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.tolerance import differences, is_near
from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest
from onnxreg.schema.manifest.parts import Check

EVIDENCE = ("certificate", "config", "golden", "report")
"""Roles of the JSON files that hold measured numbers."""
MISSING, EXTRA, DIFFERS = "missing", "extra", "differs"
FAILED_STATES = frozenset({MISSING, EXTRA, DIFFERS})
BYTES = ("digest", "size", "pieces")
"""The keys that follow from a file's bytes."""

Contents = Callable[[str], tuple[bytes, bytes] | None]
"""The bytes of a file as recorded and as rebuilt; None if the recorded ones are not at hand."""


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
        if old is None:
            if new is not None:
                yield RebuiltFile(path, new.role, EXTRA, None, new.digest)
        elif new is None:
            yield RebuiltFile(path, old.role, MISSING, old.digest, None)
        else:
            yield _compare_file(old, new, path in loose, contents)


def _compare_file(old: FileEntry, new: FileEntry, loose: bool, contents: Contents) -> RebuiltFile:
    """Compare a file that both versions have."""
    if differing := tuple(name for name, _, _ in differences(_about(old), _about(new))):
        state = DIFFERS
    elif old.digest == new.digest:
        state = "same"
    elif loose:
        state = "not promised"
    else:
        differing = _differing_parts(old, contents)
        state = DIFFERS if differing else "within tolerance"
    return RebuiltFile(old.path, old.role, state, old.digest, new.digest, differing)


def _about(entry: FileEntry) -> dict[str, Any]:
    """The facts about a file other than its bytes."""
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
    return tuple(
        name
        for name, _, _ in differences(old, new, "recall" if entry.role in ("certificate", "report") else "")
    )


def _checks(recorded: Manifest, rebuilt: Manifest) -> Iterator[Fact]:
    """Checks whose verdict is another, or whose value is beyond the tolerance of its metric."""
    before, after = (
        {
            (_key(item), check.name, check.metric): check
            for item in manifest.artifacts
            for check in item.checks
        }
        for manifest in (recorded, rebuilt)
    )
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if old is None or new is None or not _is_same_check(old, new):
            documents = [None if check is None else check.to_json() for check in (old, new)]
            yield Fact(" ".join(key), *documents)


def _is_same_check(old: Check, new: Check) -> bool:
    """True if two checks say the same: value and interval within tolerance, all else exactly."""
    content, other_content = (
        {key: value for key, value in check.to_json().items() if key not in ("value", "interval")}
        for check in (old, new)
    )
    values = zip((old.value, *(old.interval or ())), (new.value, *(new.interval or ())), strict=False)
    both = (old.interval is None) is (new.interval is None)
    return content == other_content and both and all(is_near(old.metric, *pair) for pair in values)


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
