"""The effect of each difference on an app: one table from the place of a field to its kind, severity and part of the screen."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from onnxreg.schema.compare.json_changes import JsonChange, Lists, NamedList, Namer, same
from onnxreg.schema.manifest.vocabulary import LOSS, comparable_license

Severity = Literal["breaking", "degrading", "notable", "cosmetic"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""From worst to least: breaks an app, worse results or weaker evidence, worth knowing, without effect."""
SEVERE = ("breaking", "degrading")
Direction = Literal["higher", "lower"]
"""The values of a figure that are better."""
Share = Literal["same", "new", "not known"]
"""The graph or the weights of the new version: the same, others, or not known."""
Judge = Callable[[JsonChange], Severity]

ARTIFACT, BYTES, CHECK, SUITE, EVALUATION = "artifact", "bytes", "checks", "suite", "the evaluation"
"""The parts of a screen other than facts: rows, and what follows from the bytes of an artifact or its evaluation."""
SECTIONS = (
    *("contract", "labels", "operators", "certification", "suite", "limits", "licence", "source", "tools"),
    *("quantization", "recipe", "files", "members", "checks", "other"),
)
"""Of facts, in the order of a screen."""


def check_key(item: Any) -> str:
    """The name of a check; with its metric unless it has a direction: then the name has the metric."""
    return str(item["name"]) if item.get("direction") else f"{item['name']}/{item['metric']}"


def _named(*keys: str, positions: bool = False) -> NamedList:
    """The matching of a list's objects by texts of their keys."""

    def namer(text: str) -> Namer:
        return lambda item, _: text.format_map(item)

    return NamedList(tuple(map(namer, keys)), positions)


def artifact_list(owners: Mapping[str, str] | None = None) -> NamedList:
    """The matching of artifacts. In a family, whose `owners` are the members by path, a file is renamed only within a member."""
    named = _named("{format}/{precision}/{path}", "{format}/{precision}", "{format}/{path}")
    if owners is None:
        return named

    def by_member(item: Any, _: int) -> str:
        return f"{item['format']}/{item['precision']}/{owners.get(item['path'], item['path'])}"

    return NamedList((named.namers[0], by_member, named.namers[2]))


_ITSELF = NamedList((lambda item, _: str(item),))
_IN_PLACE = _ITSELF._replace(positions=True)
CHECKS = NamedList((lambda item, _: check_key(item),))
_TENSORS = NamedList((lambda item, _: item["name"], lambda _, index: str(index)))

LISTS: Lists = {
    "labels": _IN_PLACE,
    "files": _named("{role}:{path}"),
    "recipe.steps": _named("{name}"),
    "artifacts": artifact_list(),
    "artifacts[].files": _named("{role}:{path}"),
    "artifacts[].operators": _named("{domain}:{name}:{opset}"),
    "artifacts[].checks": CHECKS,
    "artifacts[].metadata.inputs": _TENSORS,
    "artifacts[].metadata.outputs": _TENSORS,
    "model_family.members": _named("{name}"),
    "model_family.members[].classes.ids": _IN_PLACE,
    "model_family.members[].heads": _named("{member}", positions=True),
    "model_family.edges": _named("{source}.{output}->{target}.{input}"),
    **dict.fromkeys(
        (
            *("formats", "tokenizer.files", "artifacts[].contrib", "artifacts[].certification.reasons"),
            *("model_family.members[].artifacts", "model_family.members[].files"),
            *("artifacts[].metadata.operators", "artifacts[].metadata.unsupported_ops"),
            *("artifacts[].metadata.warnings", "artifacts[].metadata.execution_providers"),
        ),
        _ITSELF,
    ),
    **dict.fromkeys(
        (
            *("artifacts[].metadata.inputs[].shape[]", "artifacts[].metadata.outputs[].shape[]"),
            *("artifacts[].checks[].interval", "artifacts[].pieces.digests"),
            *("artifacts[].files[].pieces.digests", "files[].pieces.digests"),
            *("preprocessing.size", "preprocessing.mean", "preprocessing.std"),
        )
    ),
}
"""The matching of a manifest's lists; see `json_changes.Lists`."""


@dataclass(frozen=True)
class Rule:
    """The kind of a change is `<noun>-<verb>`, the verb being the operation unless `changed_is` names another.

    A message ends in the `note` of the change, if any; else, if it is breaking or degrading, in `why`. `section` is the
    part of the screen of an overview.
    """

    noun: str
    added: Severity | Judge = "notable"
    removed: Severity | Judge = "notable"
    changed: Severity | Judge = "notable"
    reordered: Severity | Judge = "cosmetic"
    changed_is: str = "changed"
    why: str = ""
    note: Callable[[JsonChange], str] = lambda delta: ""
    section: str = "other"

    def severity(self, delta: JsonChange) -> Severity:
        """An empty value that appears or goes says nothing, whatever the field."""
        is_empty = delta.op in ("added", "removed") and all(
            side is None or side in ([], {}) for side in (delta.old, delta.new)
        )
        verdict: Severity | Judge = "cosmetic" if is_empty else getattr(self, delta.op)
        return verdict if isinstance(verdict, str) else verdict(delta)

    def remark(self, delta: JsonChange) -> str:
        """The text in brackets at the end of a message."""
        return self.note(delta) or (self.why if self.severity(delta) in SEVERE else "")

    def kind(self, delta: JsonChange) -> str:
        return f"{self.noun}-{self.changed_is if delta.op == 'changed' else delta.op}"


_QUALITY_LOST = re.compile(r"recall_delta|loss|error_rate|perplexity", re.IGNORECASE)
_QUALITY = re.compile(r"recall|precision|f1|accuracy|agreement", re.IGNORECASE)
_CERTIFICATION = {"refused": 0, "unknown": 1, None: 1, "certified": 2}
_VERDICT = {"fail": 0, "unknown": 1, "info": 1, None: 1, "pass": 2}
_CERTIFIED = {None: 0, False: 0, True: 1}
_REPRODUCIBLE = {False: 0, None: 1, True: 1}
_SEMANTICS = {
    ("same", "same"): "same graph and weights, other producer",
    ("new", "same"): "same weights, other graph",
    ("same", "new"): "same graph, other weights",
    ("new", "new"): "other graph and weights",
}


def shares(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> tuple[Share, Share]:
    """Compare graph and weights of two artifacts by their semantic digests."""
    if old is None or new is None:
        return "not known", "not known"
    graph, weights = (same(old.get(half), new.get(half)) for half in ("graph", "weights"))
    return "same" if graph else "new", "same" if weights else "new"


def _semantics(delta: JsonChange) -> str:
    """The note on what two artifacts share; "" if a semantic digest is not known."""
    return _SEMANTICS.get(shares(*(artifact.get("semantic") for artifact in delta.at.within)), "")


def _file_only(delta: JsonChange) -> Severity:
    """Other bytes that compute the same are only another way to write them down."""
    return "cosmetic" if _semantics(delta) == _SEMANTICS["same", "same"] else "notable"


def _rises(worse: Severity) -> Judge:
    """A number that is worse when it grows; one that was not known, or no longer is, says nothing."""
    return lambda delta: worse if None not in (delta.old, delta.new) and delta.new > delta.old else "notable"


def _falls(worse: Severity) -> Judge:
    return lambda delta: worse if None not in (delta.old, delta.new) and delta.new < delta.old else "notable"


def _rank(order: Mapping[Any, int]) -> Judge:
    """Down in the order is degrading; a state that was only spelled out is cosmetic."""

    def judge(delta: JsonChange) -> Severity:
        old, new = order[delta.old], order[delta.new]
        return "degrading" if new < old else "notable" if new > old or delta.op == "changed" else "cosmetic"

    return judge


def _new_domain(delta: JsonChange) -> Severity:
    """Every graph has operators of ai.onnx: its opset was not recorded before. Another domain is a new demand."""
    return "notable" if delta.at.pattern.endswith(('["ai.onnx"]', '[""]')) else "breaking"


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
    directions = {check.get("direction") for check in delta.at.within} - {None}
    return directions.pop() if len(directions) == 1 else None


def _measure(delta: JsonChange) -> Severity:
    """A quality that falls, a loss that grows and a value that is lost are degrading.

    The direction of a check says which one it is, or else the name of its metric. Numerical distances (parity of logits)
    move with every training; they count through their verdict.
    """
    if _other_suite(delta):
        return "notable"
    if None in (delta.old, delta.new):
        return "degrading" if delta.new is None else "notable"
    direction = better_direction((delta.at.pattern, *delta.at.names)[-1], _direction(delta))
    is_worse = delta.new < delta.old if direction == "higher" else delta.new > delta.old
    return "degrading" if direction and is_worse else "notable"


def _other_suite(delta: JsonChange) -> str:
    """The note on two values that cannot be compared, since they were measured on different suites; else "".

    A check with a direction must name its suite: without one its values cannot be compared either.
    """
    old, new = map(_suite, delta.at.within)
    is_stated = None not in (old, new) or _direction(delta) is not None
    return "measured on another suite" if is_stated and old != new else ""


def _suite(side: dict[str, Any]) -> str | None:
    """The suite of a check, or of the artifacts of a manifest if they have one."""
    if "artifacts" not in side:
        return side.get("dataset")
    evidence = [item.get("certification", {}).get("evidence") for item in side["artifacts"]]
    suites = {item["suite"] for item in evidence if item and item.get("suite")}
    return suites.pop() if len(suites) == 1 else None


def _in_minimal_build(delta: JsonChange) -> Severity:
    """ORT-format models are what minimal builds load, with exactly the kernels that were asked for."""
    return "breaking" if delta.at.names[0].startswith("ort") else "notable"


def _reshaped(harmless: tuple[str, str]) -> Judge:
    """An input axis that becomes dynamic still accepts the old inputs, an output axis that becomes fixed gives one of the
    old shapes. The name of a dynamic axis does not matter."""

    def judge(delta: JsonChange) -> Severity:
        kinds = tuple(side.get("kind") if isinstance(side, dict) else "" for side in (delta.old, delta.new))
        if kinds == ("dynamic", "dynamic"):
            return "cosmetic"
        return "notable" if kinds == harmless else "breaking"

    return judge


def _rerouted(delta: JsonChange) -> Severity:
    """A class that gets its first head is new; one that loses it answers less; another head gives other classes."""
    if delta.old is None:
        return "notable"
    return "degrading" if delta.new is None else "breaking"


def _artifact_gone(delta: JsonChange) -> Severity:
    """A refused artifact is chosen only if nothing else fits: that it is gone breaks no app as such."""
    state = delta.old.get("certification", {}).get("state")
    return "notable" if state == "refused" else "breaking"


def _license(delta: JsonChange) -> Severity:
    """Another spelling of the same licence changes nothing: SPDX identifiers are compared without case."""
    names = {comparable_license(str(side)) for side in (delta.old, delta.new)}
    return "cosmetic" if len(names) == 1 else "notable"


def _companion(delta: JsonChange) -> Severity:
    return "degrading" if delta.at.names[0].startswith("tokenizer:") else "notable"


def _companion_gone(delta: JsonChange) -> Severity:
    needed = ("config:", "labels:", "tokenizer:")
    return "breaking" if delta.at.names[0].startswith(needed) else "notable"


FIELD = Rule("field", reordered="notable")
"""The rule of fields without a rule: they are still reported."""


def _cosmetic(noun: str) -> Rule:
    return Rule(noun, "cosmetic", "cosmetic", "cosmetic")


def _ranked(noun: str, order: Mapping[Any, int], why: str = "") -> Rule:
    return Rule(noun, _rank(order), _rank(order), _rank(order), why=why)


def _tensor(
    side: str, noun: str, added: Severity, reordered: Severity, harmless: tuple[str, str]
) -> dict[str, Rule]:
    at = f"artifacts[].metadata.{side}"
    return {
        f"{at}*": FIELD,
        at: Rule(noun, reordered=reordered),
        f"{at}[]": Rule(noun, added=added, removed="breaking"),
        f"{at}[].name": Rule(noun, changed="breaking", changed_is="renamed"),
        f"{at}[].dtype": Rule(noun, changed="breaking", changed_is="retyped"),
        f"{at}[].shape*": Rule(noun, "breaking", "breaking", _reshaped(harmless), changed_is="reshaped"),
        f"{at}[].axes*": _cosmetic(f"{noun}-axes"),
    }


_LOADER = Rule("loader", changed=_rises("breaking"), why="an older runtime may refuse it")
_PIECES = _cosmetic("pieces")
"""They follow from the bytes, whose digest is reported."""
_QUANTIZATION = Rule("quantization")
_OPERATOR = Rule(
    "operator",
    added=_in_minimal_build,
    changed=_in_minimal_build,
    why="a minimal build must have its kernel",
)
_STEP = Rule("step", reordered="notable")
_BASIS = Rule("certification-basis")

_SECTIONS: dict[str, dict[str, Rule]] = {
    ARTIFACT: {
        "artifacts[]": Rule("artifact", removed=_artifact_gone),
        "artifacts[].format": FIELD,
        "artifacts[].precision": Rule("artifact-precision", changed="breaking"),
        "artifacts[].path": Rule(
            "artifact-path", changed="breaking", why="an app may open the file by its name"
        ),
        "artifacts[].size": Rule("artifact-size"),
        "artifacts[].certification.state": _ranked("certification", _CERTIFICATION),
    },
    BYTES: {
        "artifacts[].digest": Rule("artifact-bytes", changed=_file_only, note=_semantics),
        "artifacts[].semantic*": Rule("semantic-digest", "cosmetic", "cosmetic"),
        "artifacts[].semantic.graph": Rule("graph", "cosmetic", "cosmetic"),
        "artifacts[].semantic.weights": Rule("weights", "cosmetic", "cosmetic"),
        "artifacts[].pieces*": _PIECES,
        "artifacts[].files*": Rule("sidecar"),
        "artifacts[].files[].pieces*": _PIECES,
        "artifacts[].parent": Rule("artifact-parent"),
        "artifacts[].quantization.measured*": Rule("quantization-got"),
        "artifacts[].operators[].inputs*": _OPERATOR,
        "artifacts[].operators[].outputs*": _OPERATOR,
        "recipe.steps[].result*": _STEP,
        "recipe.steps[].params.least": _STEP,
        "files[].pieces*": _PIECES,
    },
    CHECK: {
        "artifacts[].checks[]": Rule(
            "check",
            added=lambda delta: "degrading" if delta.new["verdict"] == "fail" else "notable",
            removed=lambda delta: "degrading" if delta.old["verdict"] == "pass" else "notable",
        ),
        "artifacts[].checks[].value": Rule("check-value", changed=_measure, note=_other_suite),
        "artifacts[].checks[].verdict": Rule("check-verdict", changed=_rank(_VERDICT)),
        "artifacts[].checks[]*": Rule("check"),
    },
    SUITE: {"artifacts[].certification.evidence.suite": _BASIS},
    EVALUATION: {
        "artifacts[].certification*": _BASIS,
        "artifacts[].metadata.certified": FIELD,
        f"artifacts[].metadata.{LOSS}": FIELD,
        "certification*": _BASIS,
        "certified": _ranked("certification", _CERTIFIED),
        "quantization.certified": _QUANTIZATION,
        f"quantization.{LOSS}": _QUANTIZATION,
        LOSS: Rule("recall-delta", changed=_measure, note=_other_suite),
        "recall_delta_path": FIELD,
        "recipe.parameters.search.candidates*": Rule("recipe"),
    },
    "contract": {
        **_tensor("inputs", "input", "breaking", "notable", ("static", "dynamic")),
        **_tensor("outputs", "output", "notable", "breaking", ("dynamic", "static")),
        "artifacts[].kv_cache*": Rule("kv-cache"),
        "artifacts[].kv_cache.bytes_per_token": Rule(
            "kv-cache", changed=_rises("degrading"), why="it needs more memory"
        ),
        "artifacts[].kv_cache.max_tokens": Rule("kv-cache", changed=_falls("breaking")),
        "max_sequence_length": Rule("max-sequence-length", changed=_falls("breaking")),
        "preprocessing*": Rule(
            "preprocessing", removed="degrading", changed="breaking", why="the model is fed other numbers"
        ),
        "segmenter*": Rule(
            "preprocessing", removed="degrading", changed="degrading", why="the model is fed another text"
        ),
        "task": Rule("task", changed="breaking", why="its outputs mean something else"),
        "tokenizer*": Rule("tokenizer"),
    },
    "labels": {
        "labels": Rule("label", reordered="breaking", why="the same output index now means another label"),
        "labels[]": Rule("label", removed="breaking"),
    },
    "operators": {
        "artifacts[].contrib*": Rule("contrib", "breaking", why="an older runtime may lack it"),
        "artifacts[].ir_version": _LOADER,
        "artifacts[].metadata.execution_providers*": Rule("execution-provider", reordered="notable"),
        "artifacts[].metadata.operators*": _cosmetic("operator-name"),
        "artifacts[].metadata.opset": _LOADER,
        "artifacts[].metadata.unsupported_ops*": Rule("unsupported-operator"),
        "artifacts[].operators*": _OPERATOR,
        "artifacts[].opset_imports*": replace(_LOADER, noun="opset", added=_new_domain),
        "artifacts[].ort_format": _LOADER,
        "minimum_opset": _LOADER,
    },
    "quantization": {
        "artifacts[].metadata.quantization*": FIELD,
        "artifacts[].quantization*": _QUANTIZATION,
        "artifacts[].quantization.requested*": Rule("quantization-asked"),
        "quantization*": _QUANTIZATION,
    },
    "licence": {"license": Rule("license", changed=_license)},
    "source": {"source*": Rule("source"), "source_model_id": FIELD},
    "tools": {"recipe.tools*": _cosmetic("tool")},
    "recipe": {"recipe*": Rule("recipe"), "recipe.steps*": _STEP},
    "files": {
        "files": Rule("companion"),
        "files[]": Rule("companion", removed=_companion_gone),
        "files[]*": Rule("companion", changed=_companion, why="fetch it together with the model"),
        "formats*": Rule("format", "cosmetic", "cosmetic"),
    },
    "members": {
        "model_family": Rule("family", removed="breaking"),
        "model_family*": Rule("member"),
        "model_family.edges[]": Rule("edge", removed="breaking"),
        "model_family.members[]": Rule("member", removed="breaking"),
        "model_family.members[].classes.digest": _cosmetic("classes-digest"),
        "model_family.members[].classes.ids": Rule(
            "class", reordered="breaking", why="the same output index now means another class"
        ),
        "model_family.members[].classes.ids[]": Rule("class", removed="breaking"),
        "model_family.members[].heads": Rule(
            "stacked-head", reordered="breaking", why="the same index now means another head"
        ),
        "model_family.members[].heads*": Rule("stacked-head"),
        "model_family.members[].role": Rule("member-role", changed="breaking"),
        "model_family.routing*": Rule("route", removed="breaking", changed=_rerouted),
    },
    "other": {
        "artifacts": Rule("artifact"),
        "artifacts[].checks": Rule("check"),
        "artifacts[].metadata.warnings*": _cosmetic("warning"),
        "artifacts[].reproducible": _ranked(
            "reproducible", _REPRODUCIBLE, "it cannot be rebuilt byte for byte"
        ),
        "description": _cosmetic("description"),
    },
}
RULES: dict[str, Rule] = {
    pattern: replace(rule, section=section)
    for section, rules in _SECTIONS.items()
    for pattern, rule in rules.items()
}
"""Keyed by pattern; a `*` at the end takes in everything below. The longest key that fits holds."""
_BRANCHES = sorted((key[:-1] for key in RULES if key.endswith("*")), key=len, reverse=True)
_NOUNS = {
    "contrib": "contrib operator",
    "quantization-asked": "requested quantization",
    "quantization-got": "measured quantization",
}
"""Nouns for people, if that of a kind is too short for them."""


def rule_for(pattern: str) -> Rule:
    """The rule for a place, in the notation of `Spot.pattern`."""
    if pattern in RULES:
        return RULES[pattern]
    for branch in _BRANCHES:
        if pattern == branch or pattern.startswith((f"{branch}.", f"{branch}[")):
            return RULES[f"{branch}*"]
    return FIELD


def kind_words(kind: str) -> str:
    """The kind of a change for people: `contrib operator added` for `contrib-added`."""
    noun, _, verb = kind.rpartition("-")
    return f"{_NOUNS.get(noun, noun).replace('-', ' ')} {verb}"
