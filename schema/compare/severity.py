"""Rules for the changes of a manifest's fields. A rule gives each change a kind, a severity and a section."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from onnxreg.schema.compare.json_changes import JsonChange, Lists, NamedList, Namer, same
from onnxreg.schema.manifest.vocabulary import comparable_license

Severity = Literal["breaking", "degrading", "notable", "cosmetic"]
# Worst first: breaks an app, worsens results or evidence, is worth knowing, has no effect.
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
SEVERE = ("breaking", "degrading")
Direction = Literal["higher", "lower"]  # in which a figure gets better
Share = Literal["same", "new", "not known"]  # of the old and the new artifact's graph, or weights
Judge = Callable[[JsonChange], Severity]

# Changes of these sections are rows of the overview's tables, or only counted.
ARTIFACT, BYTES, CHECK, EVALUATION = "artifacts", "bytes", "checks", "the evaluation"
NOISE = 1.1  # up to this ratio, two latencies of one file count as equal
# Why bytes differ, by the comparison of (graph, weights)
CAUSES = {
    ("same", "same"): "another producer",
    ("new", "same"): "another graph",
    ("same", "new"): "new weights",
    ("new", "new"): "another graph and new weights",
}


def _named(*keys: str) -> NamedList:
    """Make a `NamedList` from templates. The template `{role}:{path}` names an item by its role and its path."""

    def namer(text: str) -> Namer:
        return lambda item, _: text.format_map(item)

    return NamedList(tuple(map(namer, keys)))


_ITSELF = NamedList((lambda item, _: str(item),))
_IN_PLACE = _ITSELF._replace(positions=True)
# Checks match by `<name>/<metric>`. If a check has a direction, its name already includes the metric.
CHECKS = NamedList(
    (lambda item, _: item["name"] if item.get("direction") else f"{item['name']}/{item['metric']}",)
)
ARTIFACTS = _named("{format}/{precision}/{path}", "{format}/{precision}", "{format}/{path}")
_TENSORS = NamedList((lambda item, _: item["name"], lambda _, index: str(index)))

LISTS: Lists = {
    pattern: named
    for named, patterns in (
        (_IN_PLACE, "labels model_family.members[].classes.ids"),
        (ARTIFACTS, "artifacts"),
        (CHECKS, "artifacts[].checks"),
        (_TENSORS, "artifacts[].metadata.inputs artifacts[].metadata.outputs"),
        (_named("{role}:{path}"), "files artifacts[].files"),
        (_named("{name}"), "recipe.steps model_family.members"),
        (_named("{domain}:{name}:{opset}"), "artifacts[].operators"),
        (_named("{source}.{output}->{target}.{input}"), "model_family.edges"),
        (_ITSELF, "formats tokenizer.files artifacts[].contrib artifacts[].certification.reasons"),
        (_ITSELF, "artifacts[].metadata.operators artifacts[].metadata.unsupported_ops"),
        (_ITSELF, "artifacts[].metadata.warnings artifacts[].metadata.execution_providers"),
        (_ITSELF, "model_family.members[].artifacts model_family.members[].files"),
        (None, "artifacts[].metadata.inputs[].shape[] artifacts[].metadata.outputs[].shape[]"),
        (None, "artifacts[].pieces.digests artifacts[].files[].pieces.digests files[].pieces.digests"),
        (None, "preprocessing.size preprocessing.mean preprocessing.std preprocessing.sample"),
        (None, "artifacts[].checks[].interval"),
    )
    for pattern in patterns.split()
}


class Rule(Struct, frozen=True):
    """A rule for one field of a manifest: the kind, severity and message of the field's changes.

    `added`, `removed`, `changed` and `reordered` are severities. The kind is `<noun>-<verb>`, such as `label-removed`.
    The message ends with the text from `note`. If this text is empty and the change is severe, the message ends with
    `why`.
    """

    noun: str
    added: Severity | Judge = "notable"
    removed: Severity | Judge = "notable"
    changed: Severity | Judge = "notable"
    reordered: Severity | Judge = "cosmetic"
    changed_is: str = "changed"  # the verb for a changed value
    why: str = ""
    note: Callable[[JsonChange], str] = lambda delta: ""
    section: str = "other"  # the topic in an overview

    def severity(self, delta: JsonChange) -> Severity:
        """Return the severity of a change. Adding or removing an empty value is always cosmetic."""
        is_empty = delta.op in ("added", "removed") and all(
            side is None or side in ([], {}) for side in (delta.old, delta.new)
        )
        verdict: Severity | Judge = "cosmetic" if is_empty else getattr(self, delta.op)
        return verdict if isinstance(verdict, str) else verdict(delta)

    def kind(self, delta: JsonChange) -> str:
        return f"{self.noun}-{self.changed_is if delta.op == 'changed' else delta.op}"


def shares(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> tuple[Share, Share]:
    """Compare semantic digests. Return `same`, `new` or `not known`, once for the graphs and once for the weights."""
    if old is None or new is None:
        return "not known", "not known"
    graph, weights = (same(old.get(half), new.get(half)) for half in ("graph", "weights"))
    return "same" if graph else "new", "same" if weights else "new"


def _cause(delta: JsonChange) -> str:
    """Return the reason why an artifact's bytes changed, such as `new weights`. Return "" if the reason is unknown."""
    return CAUSES.get(shares(*(artifact.get("semantic") for artifact in delta.at.within)), "")


def _growth_judge(severity: Severity, sign: int = 1) -> Judge:
    """Make a function that rates an increase as `severity`, and a decrease as notable. `sign` -1 swaps the two."""
    return lambda delta: (
        severity if None not in (delta.old, delta.new) and (delta.new - delta.old) * sign > 0 else "notable"
    )


_QUALITY_LOST = re.compile(r"recall_delta|loss|error_rate|perplexity", re.IGNORECASE)
_FREE = re.compile(r"(?<=^character_recall/).*|(?<=^parity of ).*(?=/)")  # a label or an output, of any name
_QUALITY = re.compile(r"recall|precision|f1|accuracy|agreement", re.IGNORECASE)


def better_direction(name: str, stated: Direction | None) -> Direction | None:
    """Return `higher` or `lower`, whichever is better for a check: as `stated` or else as the check's name implies."""
    name = _FREE.sub("", name)
    implied: Direction | None = "higher" if _QUALITY.search(name) else None
    return stated or ("lower" if _QUALITY_LOST.search(name) else implied)


def _measure(delta: JsonChange) -> Severity:
    """Return `degrading` if a figure on the same suite got worse or is missing now. Otherwise return `notable`."""
    if _other_suite(delta):
        return "notable"
    if None in (delta.old, delta.new):
        return "degrading" if delta.new is None else "notable"
    stated = {check.get("direction") for check in delta.at.within} - {None}
    direction = better_direction(delta.at.names[-1], stated.pop() if len(stated) == 1 else None)
    is_worse = delta.new < delta.old if direction == "higher" else delta.new > delta.old
    return "degrading" if direction and is_worse else "notable"  # every training changes distances


def _other_suite(delta: JsonChange) -> str:
    """Return the reason why two figures cannot be compared. Return "" if both were measured on the same suite."""
    old, new = (check.get("dataset") for check in delta.at.within)
    if old == new:
        return ""
    return "measured on another suite" if old and new else f"the {'new' if old else 'old'} one names no suite"


def _slowed(delta: JsonChange) -> Severity:
    if delta.new > NOISE * delta.old:
        return "degrading"
    return "notable" if NOISE * delta.new < delta.old else "cosmetic"


def _breaking_unless(is_harmless: Callable[[JsonChange], bool]) -> Judge:
    return lambda delta: "notable" if is_harmless(delta) else "breaking"


def _axis_judge(harmless: tuple[str, ...]) -> Judge:
    """Make a function that rates changes of an axis. The change from `harmless[0]` to `harmless[1]` is only notable."""

    def judge(delta: JsonChange) -> Severity:
        kinds = tuple(side.get("kind") if isinstance(side, dict) else "" for side in (delta.old, delta.new))
        if kinds == ("dynamic", "dynamic"):
            return "cosmetic"
        return "notable" if kinds == harmless else "breaking"

    return judge


def _rerouted(delta: JsonChange) -> Severity:
    return "notable" if delta.old is None else "degrading" if delta.new is None else "breaking"


def _is_refused(delta: JsonChange) -> bool:
    # Apps get a refused artifact only if no other artifact fits.
    return bool(delta.old.get("certification", {}).get("state") == "refused")


def _license(delta: JsonChange) -> Severity:
    names = {comparable_license(str(side)) for side in (delta.old, delta.new)}
    return "cosmetic" if len(names) == 1 else "notable"


def _role_judge(severity: Severity, *roles: str) -> Judge:
    return lambda delta: severity if delta.at.names[0].partition(":")[0] in roles else "notable"


FIELD = Rule("field", reordered="notable")  # of fields without a rule of their own


def _cosmetic(noun: str) -> Rule:
    return Rule(noun, "cosmetic", "cosmetic", "cosmetic")


def _ranked(noun: str, *order: Any) -> Rule:
    """Make the rule of a field whose values are in `order`, worst first. Other values rank like `order[1]`."""

    def judge(delta: JsonChange) -> Severity:
        old, new = (1 if side not in order else order.index(side) for side in (delta.old, delta.new))
        return "degrading" if new < old else "notable" if new > old or delta.op == "changed" else "cosmetic"

    return Rule(noun, judge, judge, judge)


def _tensor(side: str, noun: str, added: Severity, reordered: Severity, *harmless: str) -> dict[str, Rule]:
    at = f"artifacts[].metadata.{side}"
    return {
        f"{at}*": FIELD,
        at: Rule(noun, reordered=reordered),
        f"{at}[]": Rule(noun, added=added, removed="breaking"),
        f"{at}[].name": Rule(noun, changed="breaking", changed_is="renamed"),
        f"{at}[].dtype": Rule(noun, changed="breaking", changed_is="retyped"),
        f"{at}[].shape*": Rule(noun, "breaking", "breaking", _axis_judge(harmless), changed_is="reshaped"),
        f"{at}[].axes*": _cosmetic(f"{noun}-axes"),
    }


_LOADER = Rule("loader", changed=_growth_judge("breaking"), why="an older runtime may refuse it")
_PIECES = _cosmetic("pieces")  # the file's digest changes too
_KERNEL = _breaking_unless(lambda delta: not delta.at.names[0].startswith("ort"))
_OPERATOR = Rule("operator", added=_KERNEL, changed=_KERNEL, why="a minimal build must have its kernel")
# Every graph needs `ai.onnx`
_DOMAIN = _breaking_unless(lambda delta: delta.at.pattern.endswith(('["ai.onnx"]', '[""]')))
_STEP = Rule("step", reordered="notable")
_BASIS = Rule("certification-basis")

_SECTIONS: dict[str, dict[str, Rule]] = {
    ARTIFACT: {
        "artifacts[]": Rule("artifact", removed=_breaking_unless(_is_refused)),
        "artifacts[].format": FIELD,
        "artifacts[].precision": Rule("artifact-precision", changed="breaking"),
        "artifacts[].path": Rule("artifact-path", changed="breaking", why="an app may open it by its name"),
        "artifacts[].size": Rule("artifact-size"),
        "artifacts[].certification.state": _ranked("certification", "refused", "unknown", "certified"),
    },
    "contract": {
        **_tensor("inputs", "input", "breaking", "notable", "static", "dynamic"),
        **_tensor("outputs", "output", "notable", "breaking", "dynamic", "static"),
        "artifacts[].kv_cache*": Rule("kv-cache"),
        "artifacts[].kv_cache.bytes_per_token": Rule("kv-cache", changed=_growth_judge("degrading")),
        "artifacts[].kv_cache.max_tokens": Rule("kv-cache", changed=_growth_judge("breaking", -1)),
        "max_sequence_length": Rule("max-sequence-length", changed=_growth_judge("breaking", -1)),
        "preprocessing*": Rule("preprocessing", removed="degrading", changed="breaking"),
        "audio_preprocessing*": Rule("preprocessing", removed="degrading", changed="breaking"),
        "segmenter*": Rule("preprocessing", removed="degrading", changed="degrading"),
        "task": Rule("task", changed="breaking", why="its outputs mean something else"),
        "tokenizer*": Rule("tokenizer"),
    },
    "labels": {
        "labels": Rule("label", reordered="breaking", why="the same output index now means another label"),
        "labels[]": Rule("label", removed="breaking"),
    },
    "operators": {
        "artifacts[].contrib*": Rule("contrib-operator", "breaking", why="an older runtime may lack it"),
        "artifacts[].ir_version": _LOADER,
        "artifacts[].metadata.execution_providers*": Rule("execution-provider", reordered="notable"),
        "artifacts[].metadata.operators*": _cosmetic("operator-name"),
        "artifacts[].metadata.opset": _LOADER,
        "artifacts[].metadata.unsupported_ops*": Rule("unsupported-operator"),
        "artifacts[].operators*": _OPERATOR,
        "artifacts[].opset_imports*": replace(_LOADER, noun="opset", added=_DOMAIN),
        "artifacts[].ort_format": _LOADER,
        "minimum_opset": _LOADER,
    },
    "certification": {},
    "suite": {"artifacts[].certification.evidence.suite": _BASIS},
    "limits": {},
    "latency": {
        "artifacts[].latency*": Rule("latency", "cosmetic", "cosmetic", _slowed, why="it got slower")
    },
    "licence": {"license": Rule("license", changed=_license)},
    "source": {"source*": Rule("source"), "source_model_id": FIELD},
    "tools": {"recipe.tools*": _cosmetic("tool")},
    "quantization": {
        "artifacts[].quantization*": Rule("quantization"),
        "artifacts[].quantization.requested*": Rule("requested-quantization"),
    },
    "recipe": {"recipe*": Rule("recipe"), "recipe.steps*": _STEP},
    "files": {
        "files": Rule("companion"),
        "files[]": Rule("companion", removed=_role_judge("breaking", "config", "labels", "tokenizer")),
        "files[]*": Rule("companion", changed=_role_judge("degrading", "tokenizer")),
        "formats*": Rule("format", "cosmetic", "cosmetic"),
    },
    "members": {
        "model_family": Rule("family", removed="breaking"),
        "model_family*": Rule("member"),
        "model_family.edges[]": Rule("edge", removed="breaking"),
        "model_family.members[]": Rule("member", removed="breaking"),
        "model_family.members[].classes.digest": _cosmetic("classes-digest"),
        "model_family.members[].classes.ids": Rule("class", reordered="breaking"),
        "model_family.members[].classes.ids[]": Rule("class", removed="breaking"),
        "model_family.members[].role": Rule("member-role", changed="breaking"),
        "model_family.routing*": Rule("route", removed="breaking", changed=_rerouted),
    },
    CHECK: {
        "artifacts[].checks[]": Rule(
            "check",
            added=lambda delta: "degrading" if delta.new["verdict"] == "fail" else "notable",
            removed=lambda delta: "degrading" if delta.old["verdict"] == "pass" else "notable",
        ),
        "artifacts[].checks[].value": Rule("check-value", changed=_measure, note=_other_suite),
        "artifacts[].checks[].verdict": _ranked("check-verdict", "fail", "unknown", "pass"),
        "artifacts[].checks[]*": Rule("check"),
    },
    "other": {
        "artifacts": Rule("artifact"),
        "artifacts[].checks": Rule("check"),
        "artifacts[].metadata.warnings*": _cosmetic("warning"),
        "artifacts[].reproducible": _ranked("reproducible", False, True),
        "description": _cosmetic("description"),
    },
    BYTES: {
        "artifacts[].digest": Rule(
            "artifact-bytes",
            changed=lambda delta: "cosmetic" if _cause(delta) == CAUSES["same", "same"] else "notable",
            note=_cause,
        ),
        "artifacts[].semantic*": Rule("semantic-digest", "cosmetic", "cosmetic"),
        "artifacts[].semantic.graph": Rule("graph", "cosmetic", "cosmetic"),
        "artifacts[].semantic.weights": Rule("weights", "cosmetic", "cosmetic"),
        "artifacts[].pieces*": _PIECES,
        "artifacts[].files*": Rule("sidecar"),
        "artifacts[].files[].pieces*": _PIECES,
        "artifacts[].parent": Rule("artifact-parent"),
        "artifacts[].quantization.measured*": Rule("measured-quantization"),
        "artifacts[].operators[].inputs*": _OPERATOR,
        "artifacts[].operators[].outputs*": _OPERATOR,
        "recipe.steps[].result*": _STEP,
        "recipe.steps[].params.least*": _STEP,
        "files[].pieces*": _PIECES,
    },
    EVALUATION: {
        "artifacts[].certification*": _BASIS,
        "recipe.parameters.search.candidates*": Rule("recipe"),
    },
}
SECTIONS = tuple(_SECTIONS)  # in the order of the overview
# A pattern that ends in `*` covers a field and all fields in it; the longest match applies.
RULES: dict[str, Rule] = {
    pattern: replace(rule, section=section)
    for section, rules in _SECTIONS.items()
    for pattern, rule in rules.items()
}
_BRANCHES = sorted((key[:-1] for key in RULES if key.endswith("*")), key=len, reverse=True)


def rule_for(pattern: str) -> Rule:
    """Return the rule for a field's pattern, such as `labels[]`."""
    if pattern in RULES:
        return RULES[pattern]
    for branch in _BRANCHES:
        if pattern == branch or pattern.startswith((f"{branch}.", f"{branch}[")):
            return RULES[f"{branch}*"]
    return FIELD
