import json
from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.evaluation import suite
from onnxreg.converters.evaluation.evaluate import plan_evaluation
from onnxreg.converters.evaluation.suite import Fixture, TextSpan, match_labels
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import EvaluationRequest

NAMES = json.loads(Path(suite.__file__).with_name("openmed_labels.json").read_bytes())
TEXT = "x" * 40


def match(gold: list[str], labels: tuple[str, ...], **request: Any) -> tuple[list[str], dict[str, Any]]:
    """The labels that spans of these labels get, and what the certificate says of it."""
    spans = tuple(TextSpan(3 * at, 3 * at + 2, label) for at, label in enumerate(gold))
    asked = EvaluationRequest.from_json({"suite": "suite.json", **request})
    (item,), facts = match_labels([Fixture(TEXT, spans)], labels, asked)
    return sorted(span.label for span in item.spans), facts


@pytest.mark.parametrize(
    ("gold", "labels", "openmed", "expected"),
    [
        ("NAME", ("NAME", "name"), False, "NAME"),
        ("NAME", ("name",), False, "name"),
        ("first-name", ("FIRST_NAME",), False, "FIRST_NAME"),
        ("NAME", ("name", "Name"), False, None),
        ("PERSON", ("NAME",), False, None),
        ("PERSON", ("NAME",), True, "NAME"),
        ("FIRST_NAME", ("FIRSTNAME", "NAME"), True, "FIRSTNAME"),
        ("PHONE", ("PHONENUMBER", "URL"), True, "PHONENUMBER"),
        ("dateOfBirth", ("DOB", "DATE"), True, "DOB"),
        ("PATIENT", ("NAME", "DOCTOR"), True, None),
        ("CUSTOMER", ("CLIENT",), True, None),
    ],
)
def test_gold_gets_the_only_label_that_is_spelled_alike(
    gold: str, labels: tuple[str, ...], openmed: bool, expected: str | None
) -> None:
    names, facts = match([gold], labels, **({"label_names": "openmed"} if openmed else {}))
    assert names == [expected or gold]
    assert facts == ({} if expected in (None, gold) else {"label_map": {gold: expected}})


def test_a_person_maps_and_excludes_by_name() -> None:
    label_map = {"PATIENT": "NAME", "CITY": None, "AGE": "NAME"}
    names, facts = match(["PATIENT", "CITY", "CITY", "NAME"], ("NAME",), label_map=label_map)
    assert names == ["NAME", "NAME"]
    assert facts == {"label_map": {"PATIENT": "NAME"}, "excluded_labels": {"CITY": 2}}


@pytest.mark.parametrize(
    ("gold", "label_map", "message"),
    [(["NAME", "CITY"], {"NAME": None}, "NAME"), (["PATIENT"], {"PATIENT": "NAMES"}, "NAMES")],
)
def test_a_map_to_a_label_that_the_model_lacks_and_an_exclusion_of_one_that_it_has_are_refused(
    gold: list[str], label_map: dict[str, str | None], message: str
) -> None:
    """Else the label that quantization loses could be left out, and the file certified on the others."""
    with pytest.raises(InputError, match=message):
        match(gold, ("NAME",), label_map=label_map)


def test_spans_that_overlap_under_one_label_count_once() -> None:
    item = Fixture(TEXT, (TextSpan(0, 5, "NAME"), TextSpan(3, 9, "PATIENT"), TextSpan(9, 12, "PATIENT")))
    asked = EvaluationRequest.from_json({"suite": "s", "label_map": {"PATIENT": "NAME"}})
    (matched,), _ = match_labels([item], ("NAME",), asked)
    assert matched.spans == (TextSpan(0, 9, "NAME"), TextSpan(9, 12, "NAME"))


def test_each_spelling_has_one_name() -> None:
    words = [word for spellings in NAMES.values() for word in spellings]
    own = {name.lower().replace("_", "") for name in NAMES}
    assert len(words) == len(set(words)) and own.isdisjoint(words)


def test_a_warning_counts_gold_as_it_will_be_judged(tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    spans = [{"start": 0, "end": 2, "label": "CITY"}, {"start": 2, "end": 9, "label": "PATIENT"}]
    suite.write_text(json.dumps([{"text": TEXT, "gold_spans": spans}] * 100))

    def warnings(**label_map: str | None) -> str:
        value = {"suite": str(suite), "metrics": [{"metric": "character_recall"}], "label_map": label_map}
        plan = plan_evaluation(EvaluationRequest.from_json(value), "token-classification", Path(), [])
        return " ".join(plan.warnings())

    assert "CITY" in warnings(PATIENT="NAME") and "NAME" in warnings(PATIENT="NAME")
    assert "CITY" not in warnings(CITY=None)
    assert "TOWN" in warnings(TOWN="NAME")
