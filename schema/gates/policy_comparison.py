"""Comparison of two policies: the demands that the newer one dropped or weakened. Pure.

A demand is compared for each channel and pattern of the old rules. It is kept if the new rules that cover the whole pattern
make it too, or a stricter one. Undecided cases are reported: two rules that cover a pattern together, for instance.

A policy that demands less than the one before needs approvals: the signatures that this one demanded of versions.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.gates.channel_rules import check_signers
from onnxreg.schema.gates.policy import Policy, Rule
from onnxreg.schema.manifest.license import comparable_license
from onnxreg.schema.query.expression.tree import Junction, Node
from onnxreg.schema.signing.dsse import pae

UNGOVERNED = "channel"
"""The demand that is reported for a channel that no rule covers any more."""
FORMATS = "certified"
"""The term that says which artifacts `suites`, `max_recall_loss`, `where` and `synthetic` are about."""
APPROVAL_PAYLOAD_TYPE = "application/vnd.onnxreg.policy.v1+json"
Term = tuple[str, Callable[[Rule], bool]]
"""A word of a rule, and whether a new rule demands at least as much by it."""
Part = Sequence[Term]
"""A part of a demand, as terms of a rule: a new rule keeps the part if each term holds of it."""

_WILDCARDS = re.compile(r"[*?[\]]")
"""The characters of a pattern that may mean others; a bracket without its partner means itself, and is not relied on."""


@dataclass(frozen=True, slots=True)
class Weaker:
    """A demand on a channel of some models that is gone, or laxer.

    `term` is the word of the rule that is laxer: the demand itself, or one that goes with it. `before` and `after` are its
    values, as the rules have them in JSON.
    """

    channel: str
    models: str
    demand: str
    before: Any = None
    after: Any = None
    term: str = ""

    def __str__(self) -> str:
        scope = f"{self.channel} of {self.models}"
        if self.demand == UNGOVERNED:
            return f"{scope} is no longer governed"
        if self.term == FORMATS != self.demand:
            return (
                f"{scope}: {self.demand} was about {_formats(self.before)}, is about {_formats(self.after)}"
            )
        after = "not demanded" if self.after is None else json.dumps(self.after)
        return f"{scope}: {self.term or self.demand} was {json.dumps(self.before)}, is {after}"

    def to_json(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "models": self.models,
            "demand": self.demand,
            "term": self.term or self.demand,
            "before": self.before,
            "after": self.after,
        }


def weaker(before: Policy, after: Policy) -> list[Weaker]:
    """Everything that the rules of `after` demand less of than those of `before`, in the order of these."""
    demands = (
        demand
        for rule in before.rules
        for models in rule.models
        for demand in _weaker(rule, models, after.rules)
    )
    return list(demands)


def may_overlap(one: str, other: str) -> bool:
    """False only if it is certain that no model fits both patterns: their first or last literal characters differ."""
    if not _WILDCARDS.search(one) or not _WILDCARDS.search(other):
        return fnmatchcase(one, other) or fnmatchcase(other, one)
    ends = (_WILDCARDS.split(one), _WILDCARDS.split(other))
    (head, *_, tail), (other_head, *_, other_tail) = ends
    heads_agree = head.startswith(other_head) or other_head.startswith(head)
    return heads_agree and (tail.endswith(other_tail) or other_tail.endswith(tail))


def approved_bytes(registry: str, prev: Digest, policy: Policy) -> bytes:
    """The bytes that an approval signs: the policy, and the line of a registry's policy log that it follows."""
    value = {"registry": registry, "prev": str(prev), "rules": policy.to_json()}
    return pae(APPROVAL_PAYLOAD_TYPE, canonical.encode(value))


def loosened_rules(before: Policy, after: Policy) -> list[Rule]:
    """The rules of a policy that demand signatures, and may cover a model and channel of which a later one demands less."""
    losses = weaker(before, after)
    return [
        rule
        for rule in before.rules
        if rule.signed_by
        and any(
            loss.channel == rule.channel and any(may_overlap(loss.models, pattern) for pattern in rule.models)
            for loss in losses
        )
    ]


def unapproved(
    before: Policy, after: Policy, signers: Collection[frozenset[str]], trusted: Collection[str]
) -> Iterator[str]:
    """Yield the signatures that a looser policy lacks, as gates word them.

    `signers` are the names and ids of each key that approved it, `trusted` those of all keys that are trusted.
    """
    for rule in loosened_rules(before, after):
        is_met, detail = check_signers(rule, signers, trusted)
        if not is_met:
            yield f"{rule.channel} of {', '.join(rule.models)}: signed_by: {detail}"


def _formats(value: Any) -> str:
    return "every measured artifact" if value is None else json.dumps(value)


def _weaker(old: Rule, models: str, rules: Sequence[Rule]) -> Iterator[Weaker]:
    covering = [rule for rule in rules if rule.channel == old.channel and _covers(rule, models)]
    if not covering:
        yield Weaker(old.channel, models, UNGOVERNED)
        return
    for demand, parts in _PARTS.items():
        if demand not in old.to_json():
            continue
        laxer = dict(weakened for part in parts(old) if (weakened := _laxer(old, part, covering)))
        for term, candidates in laxer.items():
            after = [value for rule in candidates if (value := _value(rule, term)) is not None]
            values = after[0] if len(after) == 1 else after or None
            yield Weaker(old.channel, models, demand, _value(old, term), values, term)


def _covers(rule: Rule, models: str) -> bool:
    """True if a rule covers every model of a pattern, as far as is known: `*` is the only wildcard that is interpreted."""
    return any(
        pattern in (models, "*")
        or (not set("?[") & set(pattern) and "[" not in models and fnmatchcase(models, pattern))
        for pattern in rule.models
    )


def _laxer(old: Rule, part: Part, rules: Sequence[Rule]) -> tuple[str, Sequence[Rule]] | None:
    """The first term that no rule keeps of those that keep the terms before it, with these rules. None if some rule keeps all."""
    for term, keeps in part:
        keeping = [rule for rule in rules if keeps(rule)]
        if not keeping:
            return term, rules
        rules = keeping
    return None


def _value(rule: Rule, term: str) -> Any:
    """The value of a term as the rule has it in JSON; None if it demands nothing."""
    if term == "signatures":
        return rule.threshold or None
    return rule.to_json().get(term)


def _same_formats(old: Rule) -> Term:
    """Loss and suite are those of the `certified` formats, or of all measured artifacts if none is named."""
    return (
        FORMATS,
        lambda rule: {*rule.certified} >= {*old.certified} if old.certified else not rule.certified,
    )


def _covers_formats(old: Rule) -> Term:
    """A proof is wanted of the `certified` formats, or of every smaller artifact if none is named."""
    return (
        FORMATS,
        lambda rule: not rule.certified or (bool(old.certified) and {*rule.certified} >= {*old.certified}),
    )


def _proof_signers(old: Rule) -> Term:
    """A rule with `signed_by` wants the proof signed by one of these keys."""
    return (
        "signed_by",
        lambda rule: not old.signed_by or (bool(rule.signed_by) and {*rule.signed_by} <= {*old.signed_by}),
    )


def _signatures(old: Rule) -> Iterable[Part]:
    """Whoever meets one of the new rules has as many signatures by keys of the old one."""

    def foreign(rule: Rule) -> int:
        """Count the keys of a rule that the old one does not name."""
        return len({*rule.signed_by} - {*old.signed_by})

    def enough(rule: Rule) -> bool:
        return rule.threshold - foreign(rule) >= old.threshold

    def keeps_signers(rule: Rule) -> bool:
        return bool(rule.signed_by) and (enough(rule) or not foreign(rule))

    return [[("signed_by", keeps_signers), ("signatures", enough)]]


def _loss(old: Rule) -> Iterable[Part]:
    """At most the old loss, by the stricter end of the interval."""
    most = old.max_recall_loss or 0.0
    return [
        [
            (
                "max_recall_loss",
                lambda rule: rule.max_recall_loss is not None and rule.max_recall_loss <= most,
            ),
            ("loss_interval", lambda rule: rule.loss_interval >= old.loss_interval),
            _same_formats(old),
        ]
    ]


def _where(old: Rule) -> Iterable[Part]:
    """Each condition that `and` joins is demanded by some rule."""
    return [[_has(condition), _same_formats(old)] for condition in _conditions(old)]


def _has(condition: Node) -> Term:
    return "where", lambda rule: condition in _conditions(rule)


def _conditions(rule: Rule) -> tuple[Node, ...]:
    tree = None if rule.where is None else rule.where.tree
    if isinstance(tree, Junction) and tree.word == "and":
        return tree.operands
    return () if tree is None else (tree,)


def _each(key: str) -> Callable[[Rule], Iterable[Part]]:
    """Everything in a list is demanded by some rule."""
    return lambda old: [[_lists(key, item)] for item in getattr(old, key)]


def _lists(key: str, item: object) -> Term:
    return key, lambda rule: item in getattr(rule, key)


def _licenses(rule: Rule) -> set[str]:
    return {comparable_license(text) for text in rule.licenses}


def _limits(form: str, most: int) -> Term:
    return "max_size", lambda rule: rule.max_size.get(form, most + 1) <= most


_PARTS: dict[str, Callable[[Rule], Iterable[Part]]] = {
    "certified": _each("certified"),
    "signed_by": _signatures,
    "suites": lambda old: [[*part, _same_formats(old)] for part in _each("suites")(old)],
    "max_recall_loss": _loss,
    "where": _where,
    "synthetic": lambda old: [[("synthetic", lambda rule: rule.synthetic is False), _same_formats(old)]],
    "max_size": lambda old: [[_limits(form, most)] for form, most in old.max_size.items()],
    "licenses": lambda old: [
        [("licenses", lambda rule: bool(rule.licenses) and _licenses(rule) <= _licenses(old))]
    ],
    "devices": _each("devices"),
    "contract": _each("contract"),
    "planned": lambda old: [
        [("planned", lambda rule: bool(rule.planned) and {*rule.planned} <= {*old.planned})]
    ],
    "breaking": lambda old: [[("breaking", lambda rule: rule.breaking is False)]],
    "faithful": lambda old: [
        [("faithful", lambda rule: rule.faithful is True), _covers_formats(old), _proof_signers(old)]
    ],
    "min_hours": lambda old: [
        [("min_hours", lambda rule: (rule.min_hours or 0.0) >= (old.min_hours or 0.0))]
    ],
}
"""For each demand its parts, each of which some rule that covers the same models must keep."""
