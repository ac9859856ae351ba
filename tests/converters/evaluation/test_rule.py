import pytest

from onnxreg.converters.evaluation.judgement import MAX_LISTED_LABELS, judge_loss
from onnxreg.converters.evaluation.recall_rule import (
    POINT_RULE,
    RULE,
    Decision,
    LabelRecall,
    MinimumEvidence,
    decide,
    thin_evidence,
)
from onnxreg.converters.evaluation.suite import Fixture, Suite, TextSpan
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError


def label(
    name: str = "A",
    *,
    loss: float = 0.0,
    characters: int = 1000,
    parent: float = 0.9,
    false_alarms: float = 0.01,
    interval: tuple[float, float] | None = None,
) -> LabelRecall:
    return LabelRecall(
        name,
        spans=characters // 10,
        characters=characters,
        parent=parent,
        candidate=parent - loss,
        loss=loss,
        interval=interval or (loss, loss),
        false_alarms=false_alarms,
        informedness=parent - false_alarms,
    )


def no_gold(name: str) -> LabelRecall:
    return LabelRecall(name, 0, 0)


def judge(
    *measured: LabelRecall,
    foreign: tuple[str, ...] = (),
    fixtures: int = 100,
    rule: str = RULE,
    margin: bool = False,
) -> Decision:
    return decide(measured, dict.fromkeys(foreign, 7), fixtures, MinimumEvidence(), rule, margin)


@pytest.mark.parametrize(
    ("lost", "gold", "state"),
    [
        (0, 1000, "certified"),
        (4, 1000, "certified"),
        (5, 1000, "refused"),
        (6, 1000, "refused"),
        (1, 200, "refused"),
    ],
)
def test_the_limit_is_strict(lost: int, gold: int, state: str) -> None:
    decision = judge(label(loss=lost / gold, characters=gold))
    assert (decision.state, decision.largest_loss) == (state, lost / gold)


def test_one_label_over_the_limit_refuses_whatever_the_others_gain() -> None:
    decision = judge(label("A", loss=-0.3), label("B", loss=0.01), label("C", loss=0.02))
    assert decision.state == "refused"
    assert decision.largest_loss == 0.02
    assert [item.label for item in decision.offending] == ["B", "C"]
    assert "B loses 0.01 " in decision.reasons[0] and "C loses 0.02 " in decision.reasons[1]


def test_gains_alone_are_a_loss_of_nothing() -> None:
    assert judge(label(loss=-0.3)).largest_loss == 0.0


@pytest.mark.parametrize(
    ("weak", "reason"),
    [
        (label("B", characters=199), "B has 199 gold characters, 200 are needed"),
        (label("B", characters=1, loss=1.0), "B has 1 gold characters"),
        (label("B", parent=0.4), "the parent itself finds too little of B: recall 0.4000"),
        (label("B", parent=0.0), "finds too little of B"),
        (label("B", parent=1.0, false_alarms=1.0), "false alarms on 1.0000 of the other characters"),
        (label("B", parent=0.52, false_alarms=0.03), "finds too little of B"),
    ],
)
def test_weak_evidence_is_unknown_unless_a_proved_loss_refuses(weak: LabelRecall, reason: str) -> None:
    assert judge(weak).state == "unknown"
    unknown = judge(label("A"), weak)
    assert unknown.state == "unknown" and any(reason in given for given in unknown.reasons)
    refused = judge(label("A", loss=0.1), weak)
    assert refused.state == "refused" and any(reason in given for given in refused.reasons)
    assert refused.largest_loss == 0.1


def test_exactly_at_the_floors_is_enough() -> None:
    assert judge(label(characters=200, parent=0.5, false_alarms=0.0)).state == "certified"


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        (judge(fixtures=0), "the evaluation suite is empty"),
        (judge(no_gold("A"), fixtures=0), "the evaluation suite is empty"),
        (judge(no_gold("A")), "has no gold for any label of the model"),
        (judge(), "has no gold for any label of the model"),
        (judge(no_gold("A"), foreign=("SSN",)), "has no gold for any label of the model"),
    ],
)
def test_nothing_to_judge_is_unknown(decision: Decision, reason: str) -> None:
    assert (decision.state, decision.largest_loss, decision.gated) == ("unknown", None, ())
    assert reason in decision.reasons[0]


def test_a_certificate_lists_labels_without_gold() -> None:
    decision = judge(label("A"), no_gold("B"))
    assert decision.state == "certified"
    assert "no gold, so not judged: B" in decision.reasons


def test_gold_of_a_label_that_the_model_lacks_certifies_nothing() -> None:
    decision = judge(label("A"), no_gold("B"), foreign=("SSN",))
    assert decision.state == "unknown"
    assert "SSN (7 spans)" in decision.reasons[0] and "A, B" in decision.reasons[0]
    assert judge(label("A", loss=0.1), foreign=("SSN",)).state == "refused"
    assert judge(label("A"), foreign=("SSN",), rule=POINT_RULE).state == "certified"


@pytest.mark.parametrize(
    ("loss", "interval", "state", "with_margin", "by_point"),
    [
        (0.001, (0.0, 0.004), "certified", "certified", "certified"),
        (0.004, (0.001, 0.009), "certified", "unknown", "certified"),
        (0.004, (0.001, 0.005), "certified", "unknown", "certified"),
        (0.0051, (0.0, 0.011), "unknown", "unknown", "refused"),
        (0.005, (0.004, 0.006), "unknown", "unknown", "refused"),
        (0.009, (0.005, 0.02), "refused", "refused", "refused"),
    ],
)
def test_a_loss_refuses_only_if_its_interval_does_not_span_the_limit(
    loss: float, interval: tuple[float, float], state: str, with_margin: str, by_point: str
) -> None:
    item = label(loss=loss, interval=interval)
    decision = judge(item)
    assert (decision.state, judge(item, margin=True).state) == (state, with_margin)
    assert judge(item, rule=POINT_RULE).state == by_point
    assert any(reason.startswith("unclear: A") for reason in decision.reasons) == (state == "unknown")
    reaches = any("interval is above the limit" in reason for reason in decision.reasons)
    assert reaches == (state == "certified" and interval[1] >= 0.005)


def test_a_loss_without_an_interval_is_unclear() -> None:
    assert judge_loss(0.1, None, 0.005) == "unknown"


def test_reasons_stay_short_however_many_labels_there_are() -> None:
    decision = judge(label("A"), foreign=tuple(f"L{number}" * 100 for number in range(MAX_LISTED_LABELS + 5)))
    assert "and 5 more" in decision.reasons[-1]
    assert max(map(len, decision.reasons)) < 4096


@pytest.mark.parametrize(
    "floors", [{"gold_chars": 0}, {"gold_chars": -1}, {"parent_recall": 0.0}, {"parent_recall": 50.0}]
)
def test_floors_that_would_let_everything_pass_are_refused(floors: dict[str, float]) -> None:
    with pytest.raises(InputError):
        MinimumEvidence(**floors)  # type: ignore[arg-type]


def test_a_floor_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(InputError):
        MinimumEvidence(parent_recall=float("nan"))


def suite_of(**spans: tuple[int, int]) -> Suite:
    """A suite with so many spans of so many characters for each label, one a text."""
    fixtures = [
        Fixture("x" * length, (TextSpan(0, length, name),))
        for name, (count, length) in spans.items()
        for _ in range(count)
    ]
    return Suite(Digest.of(b"suite"), tuple(fixtures))


@pytest.mark.parametrize(
    ("spans", "messages"),
    [
        ({"A": (200, 5)}, []),
        ({"A": (200, 5), "B": (199, 5)}, ["fewer than 200 gold spans of B: one lost span"]),
        ({"A": (200, 5), "B": (19, 10)}, ["fewer than 200 gold characters of B"]),
        ({"A": (30, 10), "B": (1, 3)}, ["gold characters of B", "gold spans of A"]),
    ],
)
def test_a_suite_that_proves_little_is_known_before_it_is_used(
    spans: dict[str, tuple[int, int]], messages: list[str]
) -> None:
    told = list(thin_evidence(suite_of(**spans).items, MinimumEvidence().gold_chars))
    assert len(told) == len(messages)
    assert all(part in message for part, message in zip(messages, told, strict=True))
