"""The effect of each difference on an app: one table from the location of a field to kind and severity."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from onnxreg.schema.compare.json_changes import JsonChange, NamedItem, PlaceTable, Tables, same
from onnxreg.schema.manifest.license import comparable_license

Severity = Literal["breaking", "degrading", "notable", "cosmetic"]
Direction = Literal["higher", "lower"]
"""The values of a figure that are better."""
Judge = Callable[[JsonChange], Severity]


def by_member(owners: Mapping[str, str], item: Any, position: int) -> str:
    """The name of an artifact of a family; `owners` are the members by path."""
    return f"{item['format']}/{item['precision']}/{owners.get(item['path'], item['path'])}"


def check_key(item: Any) -> str:
    """The name of a check; with its metric unless it has a direction: then the name has the metric."""
    return str(item["name"]) if item.get("direction") else f"{item['name']}/{item['metric']}"


_ITSELF = NamedItem((lambda item, _: str(item),))
_BY_NAME = NamedItem((lambda item, _: str(item["name"]),))
_IN_PLACE = NamedItem(_ITSELF.namers, positions=True)
_COMPANION = NamedItem((lambda item, _: f"{item['role']}:{item['path']}",))
_TENSORS = NamedItem((lambda item, _: item["name"], lambda _, index: str(index)))

TABLES = Tables(
    lists={
        "labels": _IN_PLACE,
        "files": _COMPANION,
        "recipe.steps": _BY_NAME,
        "artifacts": NamedItem(
            (
                lambda item, _: f"{item['format']}/{item['precision']}/{item['path']}",
                lambda item, _: f"{item['format']}/{item['precision']}",
                lambda item, _: f"{item['format']}/{item['path']}",
            )
        ),
        "model_family.members": _BY_NAME,
        "model_family.members[].classes.ids": _IN_PLACE,
        "model_family.members[].heads": NamedItem((lambda item, _: str(item["member"]),), positions=True),
        "model_family.edges": NamedItem(
            (lambda item, _: f"{item['source']}.{item['output']}->{item['target']}.{item['input']}",)
        ),
        "artifacts[].files": _COMPANION,
        "artifacts[].operators": NamedItem(
            (lambda item, _: f"{item['domain']}:{item['name']}:{item['opset']}",)
        ),
        "artifacts[].checks": NamedItem((lambda item, _: check_key(item),)),
        "artifacts[].metadata.inputs": _TENSORS,
        "artifacts[].metadata.outputs": _TENSORS,
        **dict.fromkeys(
            (
                *("formats", "tokenizer.files", "artifacts[].contrib", "artifacts[].certification.reasons"),
                *("model_family.members[].artifacts", "model_family.members[].files"),
                *("artifacts[].metadata.operators", "artifacts[].metadata.unsupported_ops"),
                *("artifacts[].metadata.warnings", "artifacts[].metadata.execution_providers"),
            ),
            _ITSELF,
        ),
    },
    pieces=frozenset(
        {
            *("artifacts[].metadata.inputs[].shape[]", "artifacts[].metadata.outputs[].shape[]"),
            *("artifacts[].checks[].interval", "artifacts[].pieces.digests"),
            *("artifacts[].files[].pieces.digests", "files[].pieces.digests"),
            *("preprocessing.size", "preprocessing.mean", "preprocessing.std"),
        }
    ),
)


@dataclass(frozen=True)
class DiffRule:
    """The kind of a change is `<noun>-<verb>`, the verb being the operation unless `changed_is` names another.

    A message ends in the `note` of the change, if any; else, if it is breaking or degrading, in `why`.
    """

    noun: str
    added: Severity | Judge = "notable"
    removed: Severity | Judge = "notable"
    changed: Severity | Judge = "notable"
    reordered: Severity | Judge = "cosmetic"
    changed_is: str = "changed"
    why: str = ""
    note: Callable[[JsonChange], str] = lambda delta: ""

    def severity(self, delta: JsonChange) -> Severity:
        """An empty value that appears or goes says nothing, whatever the field."""
        empty = delta.op in ("added", "removed") and _is_nothing(delta.old) and _is_nothing(delta.new)
        verdict: Severity | Judge = "cosmetic" if empty else getattr(self, delta.op)
        return verdict if isinstance(verdict, str) else verdict(delta)

    def remark(self, delta: JsonChange) -> str:
        """The text in brackets at the end of a message."""
        severe = self.severity(delta) in ("breaking", "degrading")
        return self.note(delta) or (self.why if severe else "")

    def kind(self, delta: JsonChange) -> str:
        return f"{self.noun}-{self.changed_is if delta.op == 'changed' else delta.op}"


_QUALITY_LOST = re.compile(r"recall_delta|loss|error_rate|perplexity", re.IGNORECASE)
_QUALITY = re.compile(r"recall|precision|f1|accuracy|agreement", re.IGNORECASE)
_CERTIFICATION = {"refused": 0, "unknown": 1, None: 1, "certified": 2}
_VERDICT = {"fail": 0, "unknown": 1, "info": 1, None: 1, "pass": 2}


SEMANTICS = {
    frozenset({"graph", "weights"}): "same graph and weights, other producer",
    frozenset({"weights"}): "same weights, other graph",
    frozenset({"graph"}): "same graph, other weights",
    frozenset(): "other graph and weights",
}
"""The note on two files, by the semantic digests that they share."""


def _is_nothing(value: Any) -> bool:
    return value is None or value == [] or value == {}


def _rises(worse: Severity) -> Judge:
    """A number that is worse when it grows; one that was not known, or no longer is, says nothing."""
    return lambda delta: worse if _is_known(delta) and delta.new > delta.old else "notable"


def _falls(worse: Severity) -> Judge:
    return lambda delta: worse if _is_known(delta) and delta.new < delta.old else "notable"


def _is_known(delta: JsonChange) -> bool:
    return delta.old is not None and delta.new is not None


def _new_domain(delta: JsonChange) -> Severity:
    """Every graph has operators of ai.onnx: its opset was not recorded before. Another domain is a new demand."""
    return "notable" if delta.pattern.endswith(('["ai.onnx"]', '[""]')) else "breaking"


def _new_need(delta: JsonChange) -> Severity:
    """Earlier builds did not record the needs of contrib operators: of their artifacts nothing follows."""
    old = (delta.within or ({}, {}))[0]
    domains = {operator.get("domain") for operator in old.get("operators", ())}
    return "cosmetic" if "contrib" not in old and "com.microsoft" in domains else "breaking"


def _rank(order: Mapping[Any, int]) -> Judge:
    """Down in the order is degrading; a state that was only spelled out is cosmetic."""

    def judge(delta: JsonChange) -> Severity:
        old, new = order[delta.old], order[delta.new]
        return "degrading" if new < old else "notable" if new > old or delta.op == "changed" else "cosmetic"

    return judge


def _measure(delta: JsonChange) -> Severity:
    """A quality that falls, a loss that grows and a value that is lost are degrading.

    The direction of a check says which one it is, or else the name of its metric. Numerical distances (parity of logits)
    move with every training; they count through their verdict.
    """
    if _other_suite(delta):
        return "notable"
    if not _is_known(delta):
        return "degrading" if delta.new is None else "notable"
    direction = better_direction(delta.names[-1], _direction(delta))
    is_worse = delta.new < delta.old if direction == "higher" else delta.new > delta.old
    return "degrading" if direction and is_worse else "notable"


def better_direction(name: str, stated: Direction | None) -> Direction | None:
    """`higher` or `lower`: the stated direction of a check, else that of its name; None if the name is not of a
    quality or a loss."""
    if stated:
        return stated
    if _QUALITY_LOST.search(name):
        return "lower"
    return "higher" if _QUALITY.search(name) else None


def _direction(delta: JsonChange) -> Direction | None:
    """The stated direction of a check; None if none is stated, or another one on each side."""
    directions = {item.get("direction") for item in delta.within or () if isinstance(item, dict)} - {None}
    return directions.pop() if len(directions) == 1 else None


def _other_suite(delta: JsonChange) -> str:
    """The note on two values that cannot be compared, since they were measured on different suites; else "".

    A check with a direction must name its suite: without one its values cannot be compared either.
    """
    suites = [item.get("dataset") for item in delta.within or () if isinstance(item, dict)]
    is_stated = None not in suites or _direction(delta) is not None
    differ = len(suites) == 2 and is_stated and suites[0] != suites[1]
    return "measured on another suite" if differ else ""


def _semantics(delta: JsonChange) -> str:
    """The note on what two artifacts share, by their semantic digests; "" if one of these is not known."""
    semantics = [artifact.get("semantic") for artifact in delta.within or ()]
    if len(semantics) != 2 or not all(isinstance(side, dict) for side in semantics):
        return ""
    shared = {half for half in ("graph", "weights") if same(semantics[0].get(half), semantics[1].get(half))}
    return SEMANTICS[frozenset(shared)]


def _file_only(delta: JsonChange) -> Severity:
    """Other bytes that compute the same are only another way to write them down."""
    return "cosmetic" if _semantics(delta) == SEMANTICS[frozenset({"graph", "weights"})] else "notable"


def _in_minimal_build(delta: JsonChange) -> Severity:
    """ORT-format models are what minimal builds load, with exactly the kernels that were asked for."""
    return "breaking" if delta.names[0].startswith("ort") else "notable"


def _fixed_input(delta: JsonChange) -> Severity:
    """An input axis that becomes dynamic still accepts the old inputs; the name of a dynamic axis does not matter."""
    if isinstance(delta.old, dict) and isinstance(delta.new, dict) and delta.new.get("kind") == "dynamic":
        return "cosmetic" if delta.old.get("kind") == "dynamic" else "notable"
    return "breaking"


def _fixed_output(delta: JsonChange) -> Severity:
    kinds = [side.get("kind") if isinstance(side, dict) else None for side in (delta.old, delta.new)]
    if kinds == ["dynamic", "dynamic"]:
        return "cosmetic"
    return "notable" if kinds == ["dynamic", "static"] else "breaking"


def _rerouted(delta: JsonChange) -> Severity:
    """A class that gets its first head is new; one that loses it answers less; another head gives other classes."""
    if delta.old is None:
        return "notable"
    return "degrading" if delta.new is None else "breaking"


def _removed(delta: JsonChange) -> Severity:
    """A refused artifact is chosen only if nothing else fits: that it is gone breaks no app as such."""
    state = delta.old.get("certification", {}).get("state")
    return "notable" if state == "refused" else "breaking"


def _license(delta: JsonChange) -> Severity:
    """Another spelling of the same licence changes nothing: SPDX identifiers are compared without case."""
    names = {comparable_license(str(side)) for side in (delta.old, delta.new)}
    return "cosmetic" if len(names) == 1 else "notable"


def _companion(tokenizer: Severity, default: Severity = "notable") -> Judge:
    return lambda delta: tokenizer if delta.names[0].partition(":")[0] == "tokenizer" else default


def _companion_gone(delta: JsonChange) -> Severity:
    role = delta.names[0].partition(":")[0]
    return "breaking" if role in ("config", "labels", "tokenizer") else "notable"


def _tensor(
    side: str, noun: str, added: Severity, reordered: Severity, reshaped: Judge
) -> dict[str, DiffRule]:
    at = f"artifacts[].metadata.{side}"
    return {
        at: DiffRule(noun, reordered=reordered),
        f"{at}[]": DiffRule(noun, added=added, removed="breaking"),
        f"{at}[].name": DiffRule(noun, changed="breaking", changed_is="renamed"),
        f"{at}[].dtype": DiffRule(noun, changed="breaking", changed_is="retyped"),
        f"{at}[].shape*": DiffRule(noun, "breaking", "breaking", reshaped, changed_is="reshaped"),
        f"{at}[].axes*": DiffRule(f"{noun}-axes", "cosmetic", "cosmetic", "cosmetic"),
    }


_OPSET = DiffRule("opset", _new_domain, "notable", _rises("breaking"), why="an older runtime may refuse it")
_LOADER = DiffRule("loader", "notable", "notable", _rises("breaking"), why="an older runtime may refuse it")
_PIECES = DiffRule("pieces", "cosmetic", "cosmetic", "cosmetic")
"""They follow from the bytes, whose digest is reported."""
_STATE = _rank(_CERTIFICATION)
_lost: Judge = lambda delta: "degrading" if delta.new is False else "notable"
_CERTIFIED: Judge = lambda delta: "degrading" if delta.old is True else "notable"

RULES: dict[str, DiffRule] = {
    "artifacts": DiffRule("artifact"),
    "artifacts[]": DiffRule("artifact", removed=_removed),
    "artifacts[].precision": DiffRule("artifact-precision", changed="breaking"),
    "artifacts[].path": DiffRule(
        "artifact-path", changed="breaking", why="an app may open the file by its name"
    ),
    "artifacts[].digest": DiffRule("artifact-bytes", changed=_file_only, note=_semantics),
    "artifacts[].semantic*": DiffRule("semantic-digest", "cosmetic", "cosmetic"),
    "artifacts[].semantic.graph": DiffRule("graph", "cosmetic", "cosmetic"),
    "artifacts[].semantic.weights": DiffRule("weights", "cosmetic", "cosmetic"),
    "artifacts[].size": DiffRule("artifact-size"),
    "artifacts[].pieces*": _PIECES,
    "artifacts[].files[].pieces*": _PIECES,
    "files[].pieces*": _PIECES,
    "artifacts[].parent": DiffRule("artifact-parent"),
    "artifacts[].files*": DiffRule("sidecar"),
    **_tensor("inputs", "input", "breaking", "notable", _fixed_input),
    **_tensor("outputs", "output", "notable", "breaking", _fixed_output),
    "artifacts[].metadata.opset": _LOADER,
    "artifacts[].ir_version": _LOADER,
    "artifacts[].ort_format": _LOADER,
    "minimum_opset": _LOADER,
    "artifacts[].opset_imports*": _OPSET,
    "artifacts[].operators*": DiffRule(
        "operator",
        _in_minimal_build,
        "notable",
        _in_minimal_build,
        why="a minimal build must have its kernel",
    ),
    "artifacts[].contrib*": DiffRule("contrib", _new_need, why="an older runtime may lack it"),
    "artifacts[].kv_cache*": DiffRule("kv-cache"),
    "artifacts[].kv_cache.bytes_per_token": DiffRule(
        "kv-cache", changed=_rises("degrading"), why="it needs more memory"
    ),
    "artifacts[].kv_cache.max_tokens": DiffRule("kv-cache", changed=_falls("breaking")),
    "artifacts[].metadata.operators*": DiffRule("operator-name", "cosmetic", "cosmetic", "cosmetic"),
    "artifacts[].metadata.unsupported_ops*": DiffRule("unsupported-operator"),
    "artifacts[].metadata.execution_providers*": DiffRule("execution-provider", reordered="notable"),
    "artifacts[].metadata.warnings*": DiffRule("warning", "cosmetic", "cosmetic", "cosmetic"),
    "artifacts[].quantization*": DiffRule("quantization"),
    "artifacts[].quantization.requested*": DiffRule("quantization-asked"),
    "artifacts[].quantization.measured*": DiffRule("quantization-got"),
    "artifacts[].reproducible": DiffRule(
        "reproducible", _lost, _lost, _lost, why="it cannot be rebuilt byte for byte"
    ),
    "artifacts[].checks": DiffRule("check"),
    "artifacts[].checks[]": DiffRule(
        "check",
        added=lambda delta: "degrading" if delta.new["verdict"] == "fail" else "notable",
        removed=lambda delta: "degrading" if delta.old["verdict"] == "pass" else "notable",
    ),
    "artifacts[].checks[].value": DiffRule("check-value", changed=_measure, note=_other_suite),
    "artifacts[].checks[].verdict": DiffRule("check-verdict", changed=_rank(_VERDICT)),
    "artifacts[].checks[]*": DiffRule("check"),
    "artifacts[].certification.state": DiffRule("certification", _STATE, _STATE, _STATE),
    "artifacts[].certification*": DiffRule("certification-basis"),
    "quantization*": DiffRule("quantization"),
    "quant_recall_delta": DiffRule(
        "recall-delta",
        changed=lambda delta: "notable" if _other_suite(delta) else _rises("degrading")(delta),
        note=_other_suite,
    ),
    "certified": DiffRule("certification", _CERTIFIED, _CERTIFIED, _CERTIFIED),
    "certification*": DiffRule("certification-basis"),
    "formats*": DiffRule("format", "cosmetic", "cosmetic"),
    "labels": DiffRule("label", reordered="breaking", why="the same output index now means another label"),
    "labels[]": DiffRule("label", removed="breaking"),
    "model_family": DiffRule("family", removed="breaking"),
    "model_family.members[]": DiffRule("member", removed="breaking"),
    "model_family.members[].role": DiffRule("member-role", changed="breaking"),
    "model_family.members[].classes.ids": DiffRule(
        "class", reordered="breaking", why="the same output index now means another class"
    ),
    "model_family.members[].classes.ids[]": DiffRule("class", removed="breaking"),
    "model_family.members[].classes.digest": DiffRule("classes-digest", "cosmetic", "cosmetic", "cosmetic"),
    "model_family.members[].heads": DiffRule(
        "stacked-head", reordered="breaking", why="the same index now means another head"
    ),
    "model_family.members[].heads*": DiffRule("stacked-head"),
    "model_family.edges[]": DiffRule("edge", removed="breaking"),
    "model_family.routing*": DiffRule("route", removed="breaking", changed=_rerouted),
    "model_family*": DiffRule("member"),
    "files": DiffRule("companion"),
    "files[]": DiffRule("companion", removed=_companion_gone),
    "files[]*": DiffRule(
        "companion", changed=_companion("degrading"), why="fetch it together with the model"
    ),
    "tokenizer*": DiffRule("tokenizer"),
    "segmenter*": DiffRule(
        "preprocessing", removed="degrading", changed="degrading", why="the model is fed another text"
    ),
    "preprocessing*": DiffRule(
        "preprocessing", removed="degrading", changed="breaking", why="the model is fed other numbers"
    ),
    "task": DiffRule("task", removed="notable", changed="breaking", why="its outputs mean something else"),
    "recipe.tools*": DiffRule("tool", "cosmetic", "cosmetic", "cosmetic"),
    "recipe.steps*": DiffRule("step", reordered="notable"),
    "recipe*": DiffRule("recipe"),
    "source*": DiffRule("source"),
    "license": DiffRule("license", changed=_license),
    "description": DiffRule("description", "cosmetic", "cosmetic", "cosmetic"),
    "max_sequence_length": DiffRule("max-sequence-length", changed=_falls("breaking")),
}
"""Keyed by place; a `*` at the end takes in everything below. The longest key that fits holds."""

FIELD = DiffRule("field", reordered="notable")
"""The rule of fields without a rule: they are still reported."""

_PLACES = PlaceTable(RULES, FIELD)
_NOUNS = {
    "contrib": "contrib operator",
    "quantization-asked": "requested quantization",
    "quantization-got": "measured quantization",
}
"""Nouns for people, if that of a kind is too short for them."""


def kind_words(kind: str) -> str:
    """The kind of a change for people: `contrib operator added` for `contrib-added`."""
    noun, _, verb = kind.rpartition("-")
    return f"{_NOUNS.get(noun, noun).replace('-', ' ')} {verb}"


def rule_for(location: str) -> DiffRule:
    """The rule for a place, in the notation of `JsonChange.pattern`."""
    return _PLACES.at(location)
