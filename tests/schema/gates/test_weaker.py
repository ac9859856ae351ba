"""Which demands of a policy a new one loosens."""

import pytest

from onnxreg.schema.gates import channel_rules
from onnxreg.schema.gates.policy import Policy, read_policy
from onnxreg.schema.gates.policy_comparison import _PARTS, weaker


def policy(*rules: str) -> Policy:
    return read_policy("".join(f"[[rule]]\n{rule}\n" for rule in rules).encode(), "policy")


WHERE = "metric['sts/spearman'] >= 0.82 and opset <= 18"
OTHER_CONTRACT = f"sha256:{'2' * 64}"
OLD = """channel = "stable"
models = ["acme/*", "lab/x"]
certified = ["onnx-int8"]
signed_by = ["a", "b", "c"]
signatures = 2
suites = ["sha256:1111111111111111111111111111111111111111111111111111111111111111"]
max_recall_loss = 0.01
loss_interval = true
where = "metric['sts/spearman'] >= 0.82 and opset <= 18"
synthetic = false
max_size = {onnx-int8 = "40MB", ort = "1MB"}
licenses = ["MIT", "Apache-2.0"]
devices = ["ort-android-1.23"]
contract = ["sha256:3333333333333333333333333333333333333333333333333333333333333333"]
breaking = false
planned = ["notable", "check-*"]
min_hours = 48
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
    "the conditions in another order": [OLD.replace(WHERE, "opset<=18 and metric.sts/spearman >= 0.82")],
    "a further condition": [OLD.replace(WHERE, f"{WHERE} and certified")],
    "a rule for each condition": [
        OLD.replace(WHERE, "opset <= 18"),
        """channel = "stable"\ncertified = ["onnx-int8"]\nwhere = "metric['sts/spearman'] >= 0.82"\n""",
    ],
    "smaller files": [OLD.replace("40MB", "4MB")],
    "licenses in another spelling": [OLD.replace('"MIT", "Apache-2.0"', '"apache-2.0", "mit"')],
    "fewer licenses": [OLD.replace('"MIT", ', "")],
    "more devices": [OLD.replace('23"]', '23", "ort-ios-1.23"]')],
    "more hours": [OLD.replace("min_hours = 48", "min_hours = 72")],
    "fewer planned changes": [OLD.replace('"notable", "check', '"check')],
    "more contracts": [OLD.replace("contract = [", f'contract = ["{OTHER_CONTRACT}", ')],
    "two rules instead of one": [
        OLD.replace("breaking = false\n", ""),
        'channel = "stable"\nbreaking = false\n',
    ],
}


@pytest.mark.parametrize("case", SAME_OR_STRICTER)
def test_equal_and_stricter_policies(case: str) -> None:
    assert weaker(policy(OLD), policy(*SAME_OR_STRICTER[case])) == []


SIGNERS = 'signed_by = ["a", "b", "c"]\nsignatures = 2\n'
SUITE = '["sha256:1111111111111111111111111111111111111111111111111111111111111111"]'
EVIDENCE = ("suites", "max_recall_loss", "where", "synthetic")
UNGOVERNED = ["is no longer governed"] * 2

WEAKER = {
    "no rule": ([], UNGOVERNED),
    "another channel": ([OLD.replace("stable", "beta")], UNGOVERNED),
    "one model less": ([OLD.replace(', "lab/x"', "")], UNGOVERNED[:1]),
    "a narrower pattern": ([OLD.replace('"acme/*"', '"acme/a*"')], UNGOVERNED[:1]),
    "a pattern that only looks wider": ([OLD.replace('"acme/*"', '"acme/?"')], UNGOVERNED[:1]),
    "no certificate": (
        [OLD.replace('certified = ["onnx-int8"]\n', "")],
        [
            'certified was ["onnx-int8"], is not demanded',
            *(f'{each} was about ["onnx-int8"], is about every measured artifact' for each in EVIDENCE),
        ],
    ),
    "another format": (
        [OLD.replace('["onnx-int8"]', '["ort"]')],
        [
            'certified was ["onnx-int8"], is ["ort"]',
            *(f'{each} was about ["onnx-int8"], is about ["ort"]' for each in EVIDENCE),
        ],
    ),
    "the loss of another format": (
        [
            OLD.replace("max_recall_loss = 0.01\nloss_interval = true\n", ""),
            'channel = "stable"\ncertified = ["ort"]\nmax_recall_loss = 0.005\nloss_interval = true\n',
        ],
        ['max_recall_loss was about ["onnx-int8"], is about ["ort"]'],
    ),
    "no signature": ([OLD.replace(SIGNERS, "")], ['signed_by was ["a", "b", "c"], is not demanded']),
    "one signature": ([OLD.replace("signatures = 2", "signatures = 1")], ["signatures was 2, is 1"]),
    "one key": (
        [OLD.replace(SIGNERS, 'signed_by = ["a"]\n')],
        ["signatures was 2, is 1"],
    ),
    "a further key": (
        [OLD.replace('["a", "b", "c"]', '["a", "b", "c", "d"]')],
        ['signed_by was ["a", "b", "c"], is ["a", "b", "c", "d"]'],
    ),
    "another suite": (
        [OLD.replace("sha256:1", "sha256:2")],
        [f"suites was {SUITE}, is {SUITE.replace('sha256:1', 'sha256:2')}"],
    ),
    "more loss": ([OLD.replace("0.01", "0.02")], ["max_recall_loss was 0.01, is 0.02"]),
    "the point instead of the interval": (
        [OLD.replace("loss_interval = true\n", "")],
        ["loss_interval was true, is not demanded"],
    ),
    "no expression": ([OLD.replace(f'where = "{WHERE}"\n', "")], [f'where was "{WHERE}", is not demanded']),
    "one condition less": (
        [OLD.replace(" and opset <= 18", "")],
        [f"""where was "{WHERE}", is "metric['sts/spearman'] >= 0.82\""""],
    ),
    "a lower metric": (
        [OLD.replace("0.82", "0.8")],
        [f'where was "{WHERE}", is "{WHERE.replace("0.82", "0.8")}"'],
    ),
    "one of the conditions": (
        [OLD.replace(" and opset", " or opset")],
        [f'where was "{WHERE}", is "{WHERE.replace(" and ", " or ")}"'],
    ),
    "synthetic suites": (
        [OLD.replace("synthetic = false\n", "")],
        ["synthetic was false, is not demanded"],
    ),
    "larger files": (
        [OLD.replace("40MB", "41MB")],
        ['max_size was {"onnx-int8": 40000000, "ort": 1000000}, is {"onnx-int8": 41000000, "ort": 1000000}'],
    ),
    "one format without a size": (
        [OLD.replace(', ort = "1MB"', "")],
        ['max_size was {"onnx-int8": 40000000, "ort": 1000000}, is {"onnx-int8": 40000000}'],
    ),
    "a further license": (
        [OLD.replace('"MIT", ', '"MIT", "GPL", ')],
        ['licenses was ["MIT", "Apache-2.0"], is ["MIT", "GPL", "Apache-2.0"]'],
    ),
    "no license": (
        [OLD.replace('licenses = ["MIT", "Apache-2.0"]\n', "")],
        ['licenses was ["MIT", "Apache-2.0"], is not demanded'],
    ),
    "another device": (
        [OLD.replace("android-1.23", "ios-1.23")],
        ['devices was ["ort-android-1.23"], is ["ort-ios-1.23"]'],
    ),
    "breaking changes": (
        [OLD.replace("breaking = false\n", "")],
        ["breaking was false, is not demanded"],
    ),
    "another planned change": (
        [OLD.replace('"check-*"]', '"check-*", "label-*"]')],
        ['planned was ["notable", "check-*"], is ["notable", "check-*", "label-*"]'],
    ),
    "no planned changes": (
        [OLD.replace('planned = ["notable", "check-*"]\n', "")],
        ['planned was ["notable", "check-*"], is not demanded'],
    ),
}


@pytest.mark.parametrize("case", WEAKER)
def test_weaker_rules_are_named(case: str) -> None:
    rules, messages = WEAKER[case]
    before = policy(OLD) if messages[0] in UNGOVERNED else policy(OLD.replace(', "lab/x"', ""))
    found = weaker(before, policy(*rules) if rules else Policy())
    assert [
        str(each).removeprefix(f"stable of {each.models}").removeprefix(":").strip() for each in found
    ] == messages
    assert all(each.before != each.after or each.demand == "channel" for each in found)


def test_the_demand_and_the_word_that_is_laxer() -> None:
    (found,) = weaker(policy(OLD.replace(', "lab/x"', "")), policy(OLD.replace("= 2", "= 1")))
    assert found.to_json() == {
        "channel": "stable",
        "models": "acme/*",
        "demand": "signed_by",
        "term": "signatures",
        "before": 2,
        "after": 1,
    }


FAITHFUL = 'channel = "stable"\ncertified = ["onnx-int8", "ort"]\nsigned_by = ["a", "b"]\nfaithful = true\n'


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("faithful = true\n", 'licenses = ["MIT"]\n', "stable of *: faithful was true, is not demanded"),
        (', "ort"]', "]", 'stable of *: faithful was about ["onnx-int8", "ort"], is about ["onnx-int8"]'),
        (
            ', "b"]',
            ', "b", "c"]\nsignatures = 2',
            'stable of *: signed_by was ["a", "b"], is ["a", "b", "c"]',
        ),
    ],
)
def test_a_proof_of_less_or_by_others_is_laxer(before: str, after: str, message: str) -> None:
    found = weaker(policy(FAITHFUL), policy(FAITHFUL.replace(before, after)))
    assert message in [str(each) for each in found if each.demand == "faithful"]
    assert not [each for each in weaker(policy(FAITHFUL), policy(FAITHFUL)) if each.demand == "faithful"]


def test_a_proof_of_every_format_by_fewer_keys_is_stricter() -> None:
    stricter = FAITHFUL.replace('certified = ["onnx-int8", "ort"]\n', "").replace(', "b"]', "]")
    found = weaker(policy(FAITHFUL), policy(FAITHFUL, stricter))
    assert found == []
    assert not [each for each in weaker(policy(FAITHFUL), policy(stricter)) if each.demand == "faithful"]


def test_a_first_policy_loosens_nothing() -> None:
    assert weaker(Policy(), policy(OLD)) == []
    assert weaker(Policy(), Policy()) == []


def test_every_demand_of_a_rule_is_compared() -> None:
    words = channel_rules.DEMANDS.keys() | {"breaking"}
    assert words <= _PARTS.keys()
