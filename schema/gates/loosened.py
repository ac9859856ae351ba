"""What a policy demands less of than the one before it. Pure.

A demand is compared for each channel and pattern of the old rules. It is kept if the new rules that cover the whole pattern
make it too, or a stricter one. What cannot be told is reported: two rules that cover a pattern together, for instance.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from onnxreg.schema.gates.policy import Policy, Rule

UNGOVERNED = "channel"
"""The demand that is reported for a channel that no rule covers any more."""


@dataclass(frozen=True, slots=True)
class Weaker:
    """A demand on a channel of some models that is gone, or laxer. Values are those of the rules as JSON."""

    channel: str
    models: str
    demand: str
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        where = f"{self.channel} of {self.models}"
        if self.demand == UNGOVERNED:
            return f"{where} is no longer governed"
        after = "not demanded" if self.after is None else json.dumps(self.after)
        return f"{where}: {self.demand} was {json.dumps(self.before)}, is {after}"

    def to_json(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "models": self.models,
            "demand": self.demand,
            "before": self.before,
            "after": self.after,
        }


def weaker(before: Policy, after: Policy) -> list[Weaker]:
    """Everything that the rules of `after` demand less of than those of `before`, in the order of these."""
    found = (
        each for rule in before.rules for models in rule.models for each in _weaker(rule, models, after.rules)
    )
    return list(found)


def _weaker(old: Rule, models: str, rules: Sequence[Rule]) -> Iterator[Weaker]:
    covering = [rule for rule in rules if rule.channel == old.channel and _covers(rule, models)]
    if not covering:
        yield Weaker(old.channel, models, UNGOVERNED)
        return
    before, after = old.to_json(), [rule.to_json() for rule in covering]
    for demand, keeps in _KEEPS.items():
        if demand in before and not keeps(old, covering):
            values = [each[demand] for each in after if demand in each]
            yield Weaker(
                old.channel, models, demand, before[demand], values[0] if len(values) == 1 else values or None
            )


def _covers(rule: Rule, models: str) -> bool:
    """Whether a rule covers every model of a pattern, as far as can be told: `*` is the one wildcard that is looked into."""
    return any(
        each in (models, "*")
        or (not set("?[") & set(each) and "[" not in models and fnmatchcase(models, each))
        for each in rule.models
    )


def _keeps_signatures(old: Rule, rules: Sequence[Rule]) -> bool:
    """Whoever meets one of the new rules has as many signatures by keys of the old one."""
    return any(
        rule.signed_by and rule.threshold - len({*rule.signed_by} - {*old.signed_by}) >= old.threshold
        for rule in rules
    )


def _keeps_loss(old: Rule, rules: Sequence[Rule]) -> bool:
    """At most the old loss, of at least the artifacts that the old rule looks at, by the stricter end of the interval."""
    return any(
        rule.max_recall_loss is not None
        and old.max_recall_loss is not None
        and rule.max_recall_loss <= old.max_recall_loss
        and rule.loss_interval >= old.loss_interval
        and _looks_at_as_much(rule, old)
        for rule in rules
    )


def _keeps_suites(old: Rule, rules: Sequence[Rule]) -> bool:
    """Each suite is asked about at least the artifacts that the old rule looks at."""
    return all(
        any(suite in rule.suites and _looks_at_as_much(rule, old) for rule in rules) for suite in old.suites
    )


def _looks_at_as_much(rule: Rule, old: Rule) -> bool:
    """Loss and suite are those of the `certified` formats, or of all artifacts where none is named."""
    return {*rule.certified} >= {*old.certified} if old.certified else not rule.certified


def _keeps_sizes(old: Rule, rules: Sequence[Rule]) -> bool:
    return all(
        any(rule.max_size.get(form, most + 1) <= most for rule in rules)
        for form, most in old.max_size.items()
    )


def _keeps_all(key: str) -> Callable[[Rule, Sequence[Rule]], bool]:
    """Everything in a list is demanded by some rule."""
    return lambda old, rules: all(
        any(each in getattr(rule, key) for rule in rules) for each in getattr(old, key)
    )


_KEEPS: dict[str, Callable[[Rule, Sequence[Rule]], bool]] = {
    "certified": _keeps_all("certified"),
    "signed_by": _keeps_signatures,
    "suites": _keeps_suites,
    "max_recall_loss": _keeps_loss,
    "synthetic": lambda old, rules: any(
        rule.synthetic is False and _looks_at_as_much(rule, old) for rule in rules
    ),
    "max_size": _keeps_sizes,
    "licenses": lambda old, rules: any(
        rule.licenses and {*rule.licenses} <= {*old.licenses} for rule in rules
    ),
    "devices": _keeps_all("devices"),
    "breaking": lambda old, rules: any(rule.breaking is False for rule in rules),
}
"""For each demand (`signatures` goes with `signed_by`, `loss_interval` with `max_recall_loss`) whether some rules that cover the same models keep it."""
