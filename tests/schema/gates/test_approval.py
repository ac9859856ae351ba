"""Which rules must approve a policy that demands less: those that may cover one of the models that lose something."""

from fnmatch import fnmatchcase
from itertools import product

import pytest

from onnxreg.schema.gates.policy import Policy
from onnxreg.schema.gates.policy_comparison import loosened_rules, may_overlap, unapproved


def signed(*models: str, channel: str = "stable") -> dict[str, object]:
    return {"channel": channel, "models": list(models), "signed_by": ["release"]}


def free(*models: str) -> dict[str, object]:
    return {"channel": "stable", "models": list(models), "breaking": False}


OVERLAPPING = [
    ("acme/*", "acme/pii"),
    ("*", "acme/pii"),
    ("acme/pii", "acme/*"),
    ("acme/pii", "acme/pii"),
    ("acme/*", "*/pii"),
    ("acme/p*", "acme/*-small"),
    ("acme/?ii", "acme/[pq]*"),
]
APART = [("acme/ner", "acme/pii"), ("lab/*", "acme/pii"), ("lab/*", "acme/*"), ("*-int8", "*-fp16")]


@pytest.mark.parametrize(("free_models", "signed_models"), OVERLAPPING)
def test_a_rule_that_is_dropped_needs_the_signatures_of_each_rule_for_one_of_its_models(
    free_models: str, signed_models: str
) -> None:
    before = Policy.read([free(free_models), signed(signed_models)])
    after = Policy.read([signed(signed_models)])
    assert loosened_rules(before, after) == [before.rules[1]]
    (missing,) = unapproved(before, after, [], ["release"])
    assert missing.startswith(f"stable of {signed_models}: signed_by: 0 of 1 wanted")
    assert not list(unapproved(before, after, [frozenset({"release"})], ["release"]))


@pytest.mark.parametrize(("free_models", "signed_models"), APART)
def test_a_rule_about_other_models_needs_no_signature(free_models: str, signed_models: str) -> None:
    before = Policy.read([free(free_models), signed(signed_models)])
    assert loosened_rules(before, Policy.read([signed(signed_models)])) == []


def test_a_rule_of_another_channel_needs_no_signature() -> None:
    before = Policy.read([free("*"), signed("*", channel="beta")])
    assert loosened_rules(before, Policy.read([signed("*", channel="beta")])) == []


def test_patterns_with_a_model_in_common_overlap() -> None:
    """Every short pattern with every other one, and every short name."""
    names = ["".join(word) for size in range(1, 5) for word in product("ab", repeat=size)]
    patterns = ["".join(word) for size in range(1, 4) for word in product("ab*?", repeat=size)]
    patterns += ["[ab]", "[!a]*", "*[b]", "a[ab]b"]
    models = {pattern: {name for name in names if fnmatchcase(name, pattern)} for pattern in patterns}
    for one, other in product(patterns, repeat=2):
        assert may_overlap(one, other) or models[one].isdisjoint(models[other]), (one, other)
