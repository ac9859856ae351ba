"""The place of each change on the screen of an overview: in a table, among the facts, or folded under its cause."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from onnxreg.schema.compare.figures import FigureRow
from onnxreg.schema.compare.json_changes import PlaceTable, parsed_path
from onnxreg.schema.compare.manifests import Change
from onnxreg.schema.manifest.vocabulary import LOSS

SEVERE = ("breaking", "degrading")
"""Severities that are folded only under a change that shows the same."""
ARTIFACT, CHECK, SUITE, FACT, FOLLOWS = "artifact", "check", "suite", "fact", "follows"
SECTIONS = (
    *("contract", "labels", "operators", "certification", "suite", "limits", "licence", "source", "tools"),
    *("quantization", "recipe", "files", "members", "checks", "other"),
)
"""Of facts, in the order of a screen."""
Key = tuple[str, ...]
"""The kind of place, then its names: of the artifact and the check, the section of a fact, the cause of what follows."""
BYTES, EVALUATION, ASIDE = "bytes", "the evaluation", ""
"""Causes; `ASIDE` is that of changes without effect on an app. For `BYTES` an overview says what changed in the file: weights, graph or both."""
_BYTES, _EVALUATION = (FOLLOWS, BYTES), (FOLLOWS, EVALUATION)
_ASIDE = (FOLLOWS, ASIDE)


def _facts(section: str, *places: str) -> dict[str, Key]:
    return dict.fromkeys(places, (FACT, section))


PLACES: Mapping[str, Key] = {
    **dict.fromkeys(
        (
            "artifacts[]",
            "artifacts[].precision",
            "artifacts[].format",
            "artifacts[].path",
            "artifacts[].size",
            "artifacts[].certification.state",
        ),
        (ARTIFACT,),
    ),
    **dict.fromkeys(
        (
            "artifacts[].digest",
            "artifacts[].semantic*",
            "artifacts[].pieces*",
            "artifacts[].files*",
            "artifacts[].parent",
            "artifacts[].quantization.measured*",
            "artifacts[].operators[].inputs*",
            "artifacts[].operators[].outputs*",
            "recipe.steps[].result*",
            "recipe.steps[].params.least",
            "files[].pieces*",
        ),
        _BYTES,
    ),
    "artifacts[].checks[]*": (CHECK,),
    "artifacts[].certification.evidence.suite": (SUITE,),
    **dict.fromkeys(
        (
            "artifacts[].certification*",
            "certified",
            "certification*",
            "quant_recall_delta",
            "recall_delta_path",
            "quantization.certified",
            "quantization.quant_recall_delta",
            "artifacts[].metadata.certified",
            "artifacts[].metadata.quant_recall_delta",
            "recipe.parameters.search.candidates*",
        ),
        _EVALUATION,
    ),
    **_facts(
        "contract",
        "artifacts[].metadata.inputs*",
        "artifacts[].metadata.outputs*",
        "task",
        "max_sequence_length",
        "artifacts[].kv_cache*",
        "preprocessing*",
        "segmenter*",
        "tokenizer*",
    ),
    **_facts("labels", "labels*"),
    **_facts(
        "operators",
        "artifacts[].operators*",
        "artifacts[].contrib*",
        "artifacts[].metadata.operators*",
        "artifacts[].opset_imports*",
        "artifacts[].metadata.opset",
        "artifacts[].metadata.unsupported_ops*",
        "artifacts[].metadata.execution_providers*",
        "artifacts[].ir_version",
        "artifacts[].ort_format",
        "minimum_opset",
    ),
    **_facts(
        "quantization", "artifacts[].quantization*", "artifacts[].metadata.quantization*", "quantization*"
    ),
    **_facts("licence", "license"),
    **_facts("tools", "recipe.tools*"),
    **_facts("source", "source*", "source_model_id"),
    **_facts("recipe", "recipe*"),
    **_facts("files", "files*", "formats*"),
    **_facts("members", "model_family*"),
}
"""Keyed like `severity.RULES`. A place that is not here is a fact of the section `other`."""

_TABLE: PlaceTable[Key] = PlaceTable(PLACES, (FACT, "other"))
_OF_EVALUATIONS = ("report", "certificate", "item-scores")
"""Roles of companions that an evaluation writes."""
_MIRRORS = {
    "certified": "certification.state",
    "quant_recall_delta": f"checks[{LOSS}/character_recall].value",
}
"""Keys of version 1 that repeat a value of an artifact, with the end of its path."""
_OF_CHECKS: Mapping[str, Key] = {
    "": _EVALUATION,
    "limit": _BYTES,
    "dataset": _EVALUATION,
    "interval": _EVALUATION,
    "samples": _EVALUATION,
    "value": _BYTES,
}
"""The places of the fields of a check; its value and its verdict are in the row of the figure, if it has one."""


@dataclass(frozen=True)
class ChangeKeys:
    """The place of every change of a diff.

    Args:
        causes: what follows from the bytes of each artifact whose bytes changed, by its name.
        rows: the figures that have a row, by artifact and check.
    """

    changes: Sequence[Change]
    causes: Mapping[str, str]
    rows: Mapping[tuple[str, str], FigureRow]

    def of(self, change: Change) -> Key:
        """The place of a change. A severe one is folded only if its cause is shown with the same severity."""
        pattern, names = parsed_path(change.path)
        key = self._named(_TABLE.at(pattern), pattern, names)
        if pattern.startswith("files[]") and names[0].partition(":")[0] in _OF_EVALUATIONS:
            key = _EVALUATION
        if key == _BYTES:
            key = self._of_bytes(change)
        if change.severity == "cosmetic" and key[0] == FACT and key[1] != "tools":
            return _ASIDE
        if key[0] == FOLLOWS and change.severity in SEVERE and change.path not in self._mirrored:
            return FACT, "certification" if key == _EVALUATION else "other"
        return key

    def _named(self, key: Key, pattern: str, names: Sequence[str]) -> Key:
        if key == (CHECK,):
            return self._of_check(names[0], names[1], pattern.removeprefix("artifacts[].checks[]").strip("."))
        if key == (SUITE,):
            return (SUITE, names[0]) if names[0] in self._uncompared else (FACT, "suite")
        return (ARTIFACT, names[0]) if key == (ARTIFACT,) else key

    def _of_check(self, artifact: str, check: str, leaf: str) -> Key:
        row = self.rows.get((artifact, check))
        if row is not None and row.verdict == "uncompared" and leaf in ("value", "dataset"):
            return SUITE, artifact
        if row is not None and leaf in ("", "value", "verdict"):
            return CHECK, artifact, check
        if row is not None and leaf == "limit":
            return FACT, "limits"
        return _OF_CHECKS.get(leaf, (FACT, "checks"))

    def _of_bytes(self, change: Change) -> Key:
        """Under what changed in the artifact; if it is of none, in the first; a fact if no bytes changed."""
        if cause := self.causes.get(change.artifact or ""):
            return FOLLOWS, cause
        return (FOLLOWS, next(iter(self.causes.values()))) if self.causes else (FACT, "other")

    @cached_property
    def _uncompared(self) -> frozenset[str]:
        """The artifacts with figures that are not compared."""
        return frozenset(row.artifact for row in self.rows.values() if row.verdict == "uncompared")

    @cached_property
    def _mirrored(self) -> frozenset[str]:
        """The keys of version 1 whose severe change is also one of an artifact."""
        severe = [change.path for change in self.changes if change.severity in SEVERE and change.artifact]
        return frozenset(key for key, end in _MIRRORS.items() if any(path.endswith(end) for path in severe))
