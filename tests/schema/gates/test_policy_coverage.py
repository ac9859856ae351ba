"""What is plainly free is free; whatever is not plain is left to the judge."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from onnxreg.schema.gates.policy import _READ, Policy, Rule
from onnxreg.schema.gates.policy_coverage import KNOWN_KEYS, is_plainly_free

CHANNELS = some.sampled_from(["stable", "beta"])
MODELS = some.sampled_from(["acme/pii", "acme/*", "*", "tiny"])
RULES = some.builds(
    lambda channel, models: Rule(channel, tuple(models), breaking=False),
    CHANNELS,
    some.lists(MODELS, min_size=1, unique=True),
)


def test_the_words_are_those_of_a_rule() -> None:
    assert set(_READ) == KNOWN_KEYS


@given(some.lists(RULES), some.sampled_from(["acme/pii", "tiny"]), CHANNELS)
def test_it_says_what_the_policy_says(rules: list[Rule], model: str, channel: str) -> None:
    policy = Policy(tuple(rules))
    assert is_plainly_free(policy.to_json(), model, channel) == (not policy.covering(model, channel))


@pytest.mark.parametrize(
    "rules",
    [
        None,
        {},
        ["beta"],
        [{}],
        [{"channel": 1}],
        [{"channel": "beta", "unless": "x"}],
        [{"channel": "beta", "models": "*"}],
        [{"channel": "beta", "models": []}],
        [{"channel": "beta", "models": [1]}],
    ],
)
def test_doubtful_coverage_is_not_free(rules: Any) -> None:
    assert not is_plainly_free(rules, "acme/pii", "stable")
