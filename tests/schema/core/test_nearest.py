"""Near names: what a person may have meant."""

from onnxreg.schema.core.errors import nearest, suggest

NAMES = ["OnnxConversion", "OrtFormat", "GoldenVectors"]


def test_capitals_do_not_count() -> None:
    assert nearest("ortformat", NAMES) == ["OrtFormat"]


def test_a_near_name_goes_before_the_list_of_all() -> None:
    assert suggest("GoldenVector", NAMES) == "did you mean GoldenVectors?"
    assert suggest("zzz", NAMES) == "one of: OnnxConversion, OrtFormat, GoldenVectors"
    assert suggest("zzz", NAMES, "look elsewhere") == "look elsewhere"
    assert suggest("aab", ["aaa", "aac"]) == "did you mean aac or aaa?"
