"""Policies: strict reading, and each demand met and missed."""

import hashlib
import json
from typing import Any

import pytest

from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.gates import statements
from onnxreg.schema.gates.policy import Policy, read_policy
from onnxreg.schema.gates.rule import PromotionCandidate, Rule
from onnxreg.schema.gates.statements import RULES, EvaluationDocument, FaithfulnessReport, RecordedProof
from onnxreg.schema.manifest.manifest import Manifest

FULL = b"""
[[rule]]
channel = "stable"
models = ["acme/*"]
certified = ["onnx-int8"]
signed_by = ["release", "lab"]
signatures = 1
max_recall_loss = 0.005
loss_interval = true
where = "metric['sts/spearman'] >= 0.82 and size < 1MB"
synthetic = false
max_size = {onnx-int8 = "40MB"}
licenses = ["Apache-2.0"]
contract = ["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]
devices = ["ort-android-1.23", {ort = "1.20", name = "old"}]
breaking = false
"""
INT8 = Digest.of(b"int8")
TENSORS = {
    side: [{"name": side, "dtype": "float32", "shape": [{"kind": "static", "value": 2}]}]
    for side in ("inputs", "outputs")
}
CONTRACT = (
    "sha256:"
    + hashlib.sha256(
        b'{"inputs":[{"dtype":"float32","name":"inputs","shape":[2]}],'
        b'"outputs":[{"dtype":"float32","name":"outputs","shape":[2]}]}'
    ).hexdigest()
)
SUITE, FIELD = str(Digest.of(b"suite")), str(Digest.of(b"field"))
SPEARMAN = {
    "name": "sts/spearman",
    "metric": "spearman",
    "value": 0.83,
    "verdict": "pass",
    "dataset": SUITE,
    "direction": "higher",
}


def artifact(format: str, precision: str, path: str, digest: bytes, size: int, **more: Any) -> dict[str, Any]:
    about = {"format": format, "precision": precision, "path": path, "digest": str(Digest.of(digest))}
    return about | {"size": size, "metadata": {"opset": 18}} | more


LOSS = {
    "name": "quant_recall_delta",
    "metric": "character_recall",
    "value": 0.002,
    "verdict": "pass",
    "interval": [0.001, 0.004],
}
EVIDENCE = {
    "artifact": str(INT8),
    "parent": str(Digest.of(b"checkpoint")),
    "suite": SUITE,
    "synthetic": False,
}


def document(**changes: Any) -> dict[str, Any]:
    """A manifest with one float32 and one certified int8 artifact."""
    judged = {"checks": [LOSS, SPEARMAN], "certification": {"state": "certified", "evidence": EVIDENCE}}
    int8 = artifact("onnx-int8", "int8", "model_int8.onnx", b"int8", 30, **judged | changes.pop("int8", {}))
    config = {"role": "config", "path": "config.json", "digest": str(Digest.of(b"{}")), "size": 2}
    return {
        "format": "openmed-onnx",
        "format_version": 2,
        "name": "acme/pii",
        "formats": ["onnx", "onnx-int8"],
        "artifacts": [artifact("onnx", "float32", "model.onnx", b"fp32", 100), int8],
        "files": [config],
        "license": "Apache-2.0",
        **changes,
    }


def two_alike() -> dict[str, Any]:
    """A manifest with two artifacts that differ in path and bytes only."""
    fp32 = document()["artifacts"][0]
    other = {**fp32, "path": "other.onnx", "digest": str(Digest.of(b"other"))}
    return document(formats=["onnx"], artifacts=[fp32, other])


def two_evaluated(*figures: float) -> dict[str, Any]:
    """A manifest with artifacts that were evaluated for one metric, and have no loss of recall."""
    artifacts = []
    for number, figure in enumerate(figures):
        digest = str(Digest.of(str(number).encode()))
        artifact = document()["artifacts"][1]
        evidence = artifact["certification"]["evidence"] | {"artifact": digest}
        changes = {"path": f"{number}.onnx", "digest": digest, "checks": [SPEARMAN | {"value": figure}]}
        artifacts.append(artifact | changes | {"certification": {"state": "certified", "evidence": evidence}})
    return document(formats=["onnx-int8"], artifacts=artifacts)


def made(spec: dict[str, Any]) -> PromotionCandidate:
    """The candidate of a case: `document` with what the case says otherwise, and what was said of it later."""
    evidence = {**EVIDENCE, "synthetic": spec.get("synthetic", False)}
    evidence = {key: item for key, item in evidence.items() if item is not None}
    loss = {**LOSS, **spec.get("loss", {})}
    int8: dict[str, Any] = {
        "checks": spec.get("checks", [loss if loss["interval"] else loss | {"interval": None}, SPEARMAN]),
        "certification": {"state": spec.get("state", "certified"), "evidence": evidence},
    }
    if spec.get("typed"):
        int8["metadata"] = TENSORS
    if "proofs" in spec and not spec.get("orphan"):
        int8["parent"] = str(Digest.of(b"fp32"))
    value = document(int8=int8, **{key: spec[key] for key in ("license", "labels") if key in spec})
    value = two_alike() if spec.get("twins") else value
    value = two_evaluated(*spec["figures"]) if "figures" in spec else value
    manifest = Manifest.from_json(value)
    data = manifest.encode()
    return PromotionCandidate(
        manifest,
        Digest.of(data),
        len(data),
        evaluations=tuple(later(*item) for item in spec.get("later", ())),
        signers=tuple(map(frozenset, spec.get("signers", ()))),
        proofs=tuple(proof(**item) for item in spec.get("proofs", ())),
        held=spec.get("held") and tuple(spec["held"]),
        before=Manifest.from_json(document(**spec["before"])) if "before" in spec else None,
    )


def proof(by: str = "", parent: str = "fp32", verdict: str = "proven", rules: int = RULES) -> RecordedProof:
    """A proof about the int8 artifact of `document`, signed by a key or by none."""
    head = {"format": "onnxreg-faithfulness", "format_version": 1, "rules": RULES, "verdict": verdict}
    about = {"artifact": str(INT8), "parent": str(Digest.of(parent.encode()))}
    report = FaithfulnessReport.from_json({**head, **about}).model_copy(update={"rules": rules})
    return RecordedProof(report, (frozenset({by}),) if by else ())


def later(
    state: str, loss: Any = None, interval: list[float] | None = None, artifact: str = "int8"
) -> EvaluationDocument:
    """An evaluation on another suite, with the loss that it measured, or the losses."""
    check = {"name": "quant_recall_delta", "metric": "recall", "verdict": "info"}
    check |= {} if interval is None else {"interval": interval}
    losses = loss if isinstance(loss, list) else [] if loss is None else [loss]
    about = {"artifact": str(Digest.of(artifact.encode())), "suite": FIELD, "state": state}
    about["checks"] = [check | {"value": value} for value in losses]
    return EvaluationDocument.from_json({"format": "onnxreg-evaluation", "format_version": 1} | about)


CASES = """
pass | certified | "certified": ["onnx-int8"]
fail | a format that is not there | "certified": ["ort"]
fail | refused | "certified": ["onnx-int8"] | {"state": "refused"}
fail | unknown | "certified": ["onnx-int8"] | {"state": "unknown"}
fail | never evaluated | "certified": ["onnx"]
fail | refused later | "certified": ["onnx-int8"] | {"later": [["refused"]]}
pass | certified again | "certified": ["onnx-int8"] | {"later": [["certified"]]}
pass | not evaluable later | "certified": ["onnx-int8"] | {"later": [["unknown"]]}
fail | a later certificate lifts no refusal | "certified": ["onnx-int8"] | {"state": "refused", "later": [["certified"]]}
fail | a later certificate lifts no unknown | "certified": ["onnx-int8"] | {"state": "unknown", "later": [["certified"]]}
pass | a refusal of other bytes | "certified": ["onnx-int8"] | {"later": [["refused", null, null, "else"]]}
pass | signed by name | "signed_by": ["release"] | {"signers": [["release", "RELEASE_ID"]]}
pass | signed by id | "signed_by": ["RELEASE_ID"] | {"signers": [["release", "RELEASE_ID"]]}
fail | signed by nobody | "signed_by": ["release"]
fail | signed by another | "signed_by": ["release"] | {"signers": [["lab", "LAB_ID"]]}
fail | all must sign | "signed_by": ["release", "lab"] | {"signers": [["lab", "LAB_ID"]]}
pass | all signed | "signed_by": ["release", "lab"] | {"signers": [["lab", "LAB_ID"], ["release", "RELEASE_ID"]]}
pass | one of two signed | "signed_by": ["release", "lab"], "signatures": 1 | {"signers": [["lab", "LAB_ID"]]}
fail | one key by two names is one key | "signed_by": ["release", "RELEASE_ID"] | {"signers": [["release", "RELEASE_ID"]]}
pass | suite | "suites": ["SUITE"]
fail | suite that never judged | "suites": ["SUITE", "FIELD"]
pass | two suites | "suites": ["SUITE", "FIELD"] | {"later": [["certified"]]}
fail | suite that proves nothing | "suites": ["FIELD"] | {"later": [["unknown"]]}
fail | suite that refused once | "suites": ["FIELD"] | {"later": [["certified"], ["refused"]]}
fail | suite that refused an artifact which none judged before | "suites": ["SUITE", "FIELD"] | {"later": [["certified"], ["refused", null, null, "fp32"]]}
fail | suites of nothing | "suites": ["SUITE"], "certified": ["onnx"]
pass | loss | "max_recall_loss": 0.002
fail | too much loss | "max_recall_loss": 0.0019
fail | loss that is not known | "max_recall_loss": 1 | {"checks": []}
fail | loss of a format without any | "max_recall_loss": 1, "certified": ["onnx"]
fail | loss that could not be measured | "max_recall_loss": 1 | {"loss": {"value": null}}
pass | the interval | "max_recall_loss": 0.004, "loss_interval": true
fail | the interval reaches above | "max_recall_loss": 0.0039, "loss_interval": true
fail | no interval | "max_recall_loss": 1, "loss_interval": true | {"loss": {"interval": null}}
fail | loss found later | "max_recall_loss": 0.005 | {"later": [["unknown", 0.006]]}
fail | a loss without an interval found later | "max_recall_loss": 0.005, "loss_interval": true | {"later": [["unknown", 0.001]]}
pass | a loss with an interval found later | "max_recall_loss": 0.005, "loss_interval": true | {"later": [["unknown", 0.001, [0.0, 0.002]]]}
fail | a loss found later after one without a value | "max_recall_loss": 0.005 | {"later": [["unknown", [null, 0.006]]]}
fail | the second of two losses found later | "max_recall_loss": 0.005 | {"later": [["unknown", [0.001, 0.006]]]}
fail | a loss found later of an artifact without any before | "max_recall_loss": 0.005 | {"later": [["unknown", 0.006, null, "fp32"]]}
pass | a small loss found later of an artifact without any before | "max_recall_loss": 0.005 | {"later": [["unknown", 0.001, null, "fp32"]]}
pass | no loss found later | "max_recall_loss": 0.005 | {"later": [["unknown"]]}
pass | a metric | "where": "metric['sts/spearman'] >= 0.82"
pass | a metric of the certified format | "where": "metric['sts/spearman'] >= 0.82", "certified": ["onnx-int8"]
fail | a metric that is too low | "where": "metric['sts/spearman'] >= 0.84"
fail | a metric that was not measured | "where": "metric['sts/pearson'] >= 0"
fail | a metric on another suite | "where": "metric['sts/spearman'] >= 0" | {"checks": [{"name": "sts/spearman", "metric": "spearman", "value": 0.83, "verdict": "pass", "direction": "higher", "dataset": "FIELD"}]}
fail | a metric of an artifact that was not evaluated | "where": "metric['sts/spearman'] >= 0.82", "certified": ["onnx"]
fail | a metric of artifacts of which none was evaluated | "where": "not metric['sts/spearman'] >= 0.82" | {"twins": true}
fail | two evaluated artifacts, one of them too bad | "where": "metric['sts/spearman'] >= 0.82" | {"figures": [0.83, 0.8]}
pass | two evaluated artifacts | "where": "metric['sts/spearman'] >= 0.82" | {"figures": [0.83, 0.84]}
pass | any field of an artifact | "where": "certified and opset <= 18 and download_size <= 32 and license = Apache-2.0"
fail | the effective state | "where": "certified" | {"later": [["refused"]]}
pass | a real suite | "synthetic": false
fail | a synthetic suite | "synthetic": false | {"synthetic": true}
fail | a suite that does not say | "synthetic": false | {"synthetic": null}
pass | size with companions | "max_size": {"onnx-int8": 32}
fail | too large | "max_size": {"onnx-int8": 31}
pass | no artifact of the format, which is said | "max_size": {"ort": 1}
pass | licence | "licenses": ["MIT", "Apache-2.0"]
pass | the licence in another spelling | "licenses": ["apache-2.0 or mit", "apache-2.0"]
pass | the licence as an old card spells it | "licenses": ["Apache-2.0"] | {"license": "apache-2.0"}
pass | a licence of no list in another case | "licenses": ["Acme Terms"] | {"license": "acme terms"}
fail | another licence | "licenses": ["MIT"]
fail | no licence | "licenses": ["MIT"] | {"license": null}
pass | a device | "devices": ["ort-android-1.23"]
fail | a device that nothing runs on | "devices": [{"ort": "1.23", "ram": 10}]
pass | a device whose artifact is here, and one alike is not | "devices": ["ort-android-1.23"] | {"twins": true, "held": ["other.onnx"]}
fail | a device whose artifact is not here | "devices": ["ort-android-1.23"] | {"held": ["none.onnx"]}
pass | a contract that an artifact has | "contract": ["CONTRACT"] | {"typed": true}
fail | a contract of an artifact that is not here | "contract": ["CONTRACT"] | {"typed": true, "held": ["model.onnx"]}
fail | a contract that no artifact has | "contract": ["CONTRACT"]
pass | a proof on record | "faithful": true | {"proofs": [{}]}
fail | no proof on record | "faithful": true | {"proofs": []}
fail | a proof about another parent | "faithful": true | {"proofs": [{"parent": "other"}]}
fail | a proof that is bounded | "faithful": true | {"proofs": [{"verdict": "bounded"}]}
fail | a proof of a child without a parent | "faithful": true | {"proofs": [{}], "orphan": true}
fail | a proof that is not signed | "faithful": true, "signed_by": ["release"] | {"proofs": [{}], "signers": [["release"]]}
fail | a proof that a later one takes back | "faithful": true | {"proofs": [{}, {"verdict": "not-provable"}]}
pass | a proof that takes an earlier one back | "faithful": true | {"proofs": [{"verdict": "not-provable"}, {}]}
pass | a signed proof before one by somebody else | "faithful": true, "signed_by": ["release"] | {"proofs": [{"by": "release"}, {"by": "other", "verdict": "bounded"}, {"verdict": "bounded"}], "signers": [["release"]]}
fail | a signed proof that its key takes back | "faithful": true, "signed_by": ["release"] | {"proofs": [{"by": "release"}, {"by": "release", "verdict": "bounded"}, {"by": "other"}], "signers": [["release"]]}
fail | a proof by other rules | "faithful": true | {"proofs": [{"rules": 1}]}
pass | a proof by the demanded key | "faithful": true, "signed_by": ["release"] | {"proofs": [{"by": "release"}], "signers": [["release"]]}
pass | nothing before | "breaking": false
pass | no breaking change | "breaking": false | {"before": {"license": "MIT"}}
fail | a breaking change | "breaking": false | {"labels": ["A"], "before": {"labels": ["B"]}}
"""
"""The verdict, the case, its rule, and what `made` takes; without it the plain candidate."""


def read_case(line: str) -> tuple[str, dict[str, Any], PromotionCandidate]:
    words = {"SUITE": SUITE, "FIELD": FIELD, "CONTRACT": CONTRACT, "RELEASE_ID": "1" * 64, "LAB_ID": "2" * 64}
    for word, text in words.items():
        line = line.replace(f'"{word}"', f'"{text}"')
    verdict, _, rule, *spec = line.split(" | ")
    return verdict, json.loads(f"{{{rule}}}"), made(json.loads(spec[0]) if spec else {})


@pytest.mark.parametrize("line", CASES.strip().splitlines())
def test_a_rule_passes_or_fails(line):
    expected, rule, found = read_case(line)
    results = {each.verdict for each in Rule.from_json({"channel": "stable", **rule}).evaluate(found)}
    assert min(results) == expected  # some finding, and one failure is enough


def test_every_demand_passes_and_fails_somewhere():
    cases = map(read_case, CASES.strip().splitlines())
    seen = {(word, expected) for expected, rule, _ in cases for word in rule}
    demands = Rule.model_fields.keys() - {"channel", "models", "signatures", "loss_interval"}
    assert seen >= {(word, verdict) for word in demands for verdict in ("pass", "fail")}


def test_only_what_is_demanded_is_looked_at():
    found = Rule.from_json({"channel": "stable", "licenses": ["MIT"]}).evaluate(made({}))
    assert [each.requirement for each in found] == ["licenses"]


def test_reads_and_writes_the_whole_file():
    policy = read_policy(FULL, "policy.toml")
    assert Policy.from_json(policy.to_json()) == policy
    (rule,) = policy.to_json()["rule"]
    assert rule["max_size"] == {"onnx-int8": 40_000_000}
    assert rule["where"] == "metric['sts/spearman'] >= 0.82 and size < 1MB"
    assert rule["devices"] == ["ort-android-1.23", {"ort": "1.20", "name": "old"}]
    assert len(policy.covering("acme/pii", "stable")) == 1
    assert not policy.covering("acme/pii", "beta") and not policy.covering("other", "stable")


def test_an_empty_policy_governs_nothing():
    assert read_policy(b"", "policy.toml") == Policy()


BAD = {
    "not TOML": (b"[[rule", "not TOML"),
    "not text": (b"\xff", "not text in UTF-8"),
    "a key of many parts": (b"[[rule]]\n" + b"a." * 32 + b"b=1", "a key of more than 32 parts"),
    "another table": (b"[rules]", "no such key"),
    "an unknown word": (b'[[rule]]\nchannel="a"\nlicence=["MIT"]', "no such key"),
    "no channel": (b'[[rule]]\nlicenses=["MIT"]', "channel: it is missing"),
    "a version for a channel": (b'[[rule]]\nchannel="1.0.0"\nlicenses=["MIT"]', "not a channel"),
    "nothing demanded": (b'[[rule]]\nchannel="a"', "demands nothing"),
    "an empty list": (b'[[rule]]\nchannel="a"\nlicenses=[]', "at least one"),
    "a word twice": (b'[[rule]]\nchannel="a"\nlicenses=["MIT","MIT"]', "different"),
    "no such device": (b'[[rule]]\nchannel="a"\ndevices=["ort-android-9.9"]', "there is no device preset"),
    "no size": (b'[[rule]]\nchannel="a"\nmax_size={ort="big"}', "not a size"),
    "a loss beyond 1": (b'[[rule]]\nchannel="a"\nmax_recall_loss=5', "less than or equal to 1"),
    "an expression that means nothing": (
        b'[[rule]]\nchannel="a"\nwhere="metric > 1"',
        "where: the expression cannot be read: expected the name of the metric",
    ),
    "an expression about the version": (
        b'[[rule]]\nchannel="a"\nwhere="certified and newest"',
        "where: newest is not a field of an artifact",
    ),
    "an expression that is too deep": (
        b'[[rule]]\nchannel="a"\nwhere="' + b"not " * 65 + b'certified"',
        "nested deeper than 64 levels",
    ),
    "an expression that is not a text": (b'[[rule]]\nchannel="a"\nwhere=1', "where"),
    "an interval of nothing": (
        b'[[rule]]\nchannel="a"\nlicenses=["MIT"]\nloss_interval=true',
        "max_recall_loss",
    ),
    "more signatures than keys": (b'[[rule]]\nchannel="a"\nsigned_by=["b"]\nsignatures=2', "signatures is 2"),
    "no signature": (b'[[rule]]\nchannel="a"\nsigned_by=["b"]\nsignatures=0', "greater than 0"),
    "breaking wanted": (b'[[rule]]\nchannel="a"\nbreaking=true', "it must be False"),
    "synthetic wanted": (b'[[rule]]\nchannel="a"\nsynthetic=true', "it must be False"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_policy_is_refused(case):
    data, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        read_policy(data, "policy.toml")
    assert caught.value.message.startswith("policy.toml")


def report(**changes: Any) -> bytes:
    value = later("refused", 0.03, [0.01, 0.05]).to_json() | {"synthetic": False} | changes
    return json.dumps({key: item for key, item in value.items() if item is not None}).encode()


def test_reads_an_evaluation():
    found = statements.read_evaluation(report())
    assert (found.artifact, str(found.suite), found.state, found.synthetic) == (INT8, FIELD, "refused", False)
    assert [(check.value, check.interval) for check in found.checks] == [(0.03, (0.01, 0.05))]


def test_a_report_of_another_kind_is_refused_in_words():
    with pytest.raises(InputError, match="report is not valid") as caught:
        statements.read_evaluation(b"{}")
    assert "docs/gates.md" in caught.value.hint


@pytest.mark.parametrize(
    "changes", [{"artifact": None}, {"suite": None}, {"state": "good"}, {"format_version": 2}]
)
def test_refuses_an_evaluation_that_does_not_say_what_of(changes):
    with pytest.raises(InputError):
        statements.read_evaluation(report(**changes))
