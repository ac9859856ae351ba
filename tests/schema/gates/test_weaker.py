"""Which demands of a policy a new one loosens."""

import pytest

from onnxreg.schema.gates import channel_rules
from onnxreg.schema.gates.loosened import _KEEPS, weaker
from onnxreg.schema.gates.policy import Policy, read_policy


def policy(*rules: str) -> Policy:
    return read_policy("".join(f"[[rule]]\n{rule}\n" for rule in rules).encode(), "policy")


OLD = """channel = "stable"
models = ["acme/*", "lab/x"]
certified = ["onnx-int8"]
signed_by = ["a", "b", "c"]
signatures = 2
suites = ["sha256:1111111111111111111111111111111111111111111111111111111111111111"]
max_recall_loss = 0.01
loss_interval = true
synthetic = false
max_size = {onnx-int8 = "40MB", ort = "1MB"}
licenses = ["MIT", "Apache-2.0"]
devices = ["ort-android-1.23"]
breaking = false
"""

SAME_OR_STRICTER = {
    "the same": [OLD],
    "a further rule": [OLD, 'channel = "stable"\nlicenses = ["MIT"]\n'],
    "a rule for another channel": [OLD, 'channel = "beta"\nbreaking = false\n'],
    "every model": [OLD.replace('"acme/*", "lab/x"', '"*"')],
    "a wider pattern": [OLD.replace('"acme/*"', '"ac*"')],
    "more certified formats": [OLD.replace('["onnx-int8"]', '["onnx-int8", "ort"]')],
    "more signatures": [OLD.replace("signatures = 2", "signatures = 3")],
    "fewer keys": [OLD.replace('["a", "b", "c"]', '["a", "b"]')],
    "another key, and a signature more": [
        OLD.replace('["a", "b", "c"]', '["a", "b", "c", "d"]').replace("signatures = 2", "signatures = 3")
    ],
    "less loss": [OLD.replace("0.01", "0.005")],
    "smaller files": [OLD.replace("40MB", "4MB")],
    "fewer licenses": [OLD.replace('"MIT", ', "")],
    "more devices": [OLD.replace('23"]', '23", "ort-ios-1.23"]')],
    "two rules instead of one": [
        OLD.replace("breaking = false\n", ""),
        'channel = "stable"\nbreaking = false\n',
    ],
}


@pytest.mark.parametrize("case", SAME_OR_STRICTER)
def test_what_is_the_same_or_stricter(case: str) -> None:
    assert weaker(policy(OLD), policy(*SAME_OR_STRICTER[case])) == []


WEAKER = {
    "no rule": ([], ["channel", "channel"]),
    "another channel": ([OLD.replace("stable", "beta")], ["channel", "channel"]),
    "one model less": ([OLD.replace(', "lab/x"', "")], ["channel"]),
    "a narrower pattern": ([OLD.replace('"acme/*"', '"acme/a*"')], ["channel"]),
    "a pattern that only looks wider": ([OLD.replace('"acme/*"', '"acme/?"')], ["channel"]),
    "no certificate": (
        [OLD.replace('certified = ["onnx-int8"]\n', "")],
        ["certified", "suites", "max_recall_loss", "synthetic"],
    ),
    "another format": (
        [OLD.replace('["onnx-int8"]', '["ort"]')],
        ["certified", "suites", "max_recall_loss", "synthetic"],
    ),
    "no signature": ([OLD.replace('signed_by = ["a", "b", "c"]\nsignatures = 2\n', "")], ["signed_by"]),
    "one signature": ([OLD.replace("signatures = 2", "signatures = 1")], ["signed_by"]),
    "a further key": ([OLD.replace('["a", "b", "c"]', '["a", "b", "c", "d"]')], ["signed_by"]),
    "another suite": ([OLD.replace("sha256:1", "sha256:2")], ["suites"]),
    "more loss": ([OLD.replace("0.01", "0.02")], ["max_recall_loss"]),
    "the point instead of the interval": ([OLD.replace("loss_interval = true\n", "")], ["max_recall_loss"]),
    "synthetic suites": ([OLD.replace("synthetic = false\n", "")], ["synthetic"]),
    "larger files": ([OLD.replace("40MB", "41MB")], ["max_size"]),
    "one format without a size": ([OLD.replace(', ort = "1MB"', "")], ["max_size"]),
    "a further license": ([OLD.replace('"MIT", ', '"MIT", "GPL", ')], ["licenses"]),
    "no license": ([OLD.replace('licenses = ["MIT", "Apache-2.0"]\n', "")], ["licenses"]),
    "another device": ([OLD.replace("android-1.23", "ios-1.23")], ["devices"]),
    "breaking changes": ([OLD.replace("breaking = false\n", "")], ["breaking"]),
}


@pytest.mark.parametrize("case", WEAKER)
def test_what_is_laxer_is_named(case: str) -> None:
    rules, demands = WEAKER[case]
    before = policy(OLD) if demands.count("channel") else policy(OLD.replace(', "lab/x"', ""))
    found = weaker(before, policy(*rules) if rules else Policy())
    assert [each.demand for each in found] == demands
    assert all(str(each).startswith("stable of ") for each in found)


def test_a_first_policy_loosens_nothing() -> None:
    assert weaker(Policy(), policy(OLD)) == []
    assert weaker(Policy(), Policy()) == []


def test_every_demand_of_a_rule_is_compared() -> None:
    words = channel_rules.DEMANDS.keys() | {"breaking"}
    assert words <= _KEEPS.keys()
