import pytest
from pii_data import Sentence, Span
from pii_tags import IGNORED, TAG_IDS, TAGS, Offset, align, character_recall, decode

TEXT = "Call Ann Lee at 12 Elm St"
SPANS = (Span(5, 8, "FIRSTNAME"), Span(9, 12, "LASTNAME"), Span(16, 25, "ADDRESS"))
OFFSETS = [(0, 0), (0, 4), (5, 7), (7, 8), (9, 12), (13, 15), (16, 18), (19, 22), (23, 25), (0, 0)]
NAMES = ["", "O", "B-FIRSTNAME", "I-FIRSTNAME", "B-LASTNAME", "O", "B-ADDRESS", "I-ADDRESS", "I-ADDRESS", ""]


def tags(*names: str) -> list[int]:
    return [TAG_IDS[name] for name in names]


def test_there_are_two_tags_a_label_and_one_for_the_rest() -> None:
    assert len(TAGS) == 17 and TAGS[0] == "O" and {tag: at for at, tag in enumerate(TAGS)} == TAG_IDS


@pytest.mark.parametrize(
    ("spans", "offsets", "names"),
    [
        (SPANS, OFFSETS, NAMES),
        ([Span(2, 6, "DATE")], [(0, 3), (3, 8), (8, 9)], ["B-DATE", "I-DATE", "O"]),
        ([Span(0, 2, "MRN"), Span(2, 4, "MRN")], [(0, 2), (2, 4)], ["B-MRN", "B-MRN"]),
    ],
    ids=["a first token begins", "a token overlaps", "two touch"],
)
def test_every_token_of_a_span_is_tagged(spans: list[Span], offsets: list[Offset], names: list[str]) -> None:
    assert ["" if tag == IGNORED else TAGS[tag] for tag in align(spans, offsets)] == names


def test_decoding_gives_back_what_was_aligned() -> None:
    ids = [TAG_IDS["O"] if tag == IGNORED else tag for tag in align(SPANS, OFFSETS)]
    assert decode(ids, OFFSETS) == list(SPANS)


@pytest.mark.parametrize(
    ("spelled", "spans"),
    [
        (("I-DATE", "I-DATE"), [Span(0, 4, "DATE")]),
        (("B-DATE", "B-DATE"), [Span(0, 2, "DATE"), Span(2, 4, "DATE")]),
        (("B-DATE", "I-SSN"), [Span(0, 2, "DATE"), Span(2, 4, "SSN")]),
        (("B-DATE", "O"), [Span(0, 2, "DATE")]),
        (("O", "O"), []),
    ],
    ids=["inside opens", "two begin", "label changes", "ends", "nothing"],
)
def test_decoding(spelled: tuple[str, ...], spans: list[Span]) -> None:
    assert decode(tags(*spelled), [(0, 2), (2, 4)]) == spans


def test_a_token_without_text_neither_opens_nor_closes_a_span() -> None:
    offsets: list[Offset] = [(0, 0), (0, 2), (0, 0), (2, 4)]
    assert decode(tags("B-SSN", "B-SSN", "O", "I-SSN"), offsets) == [Span(0, 4, "SSN")]


def test_recall_counts_gold_characters_under_the_right_label() -> None:
    sentence = Sentence(TEXT, SPANS, 0)
    found = [Span(5, 12, "FIRSTNAME"), Span(16, 22, "ADDRESS")]
    recall = character_recall([sentence], [found])
    assert recall == {"ADDRESS": 0.6667, "FIRSTNAME": 1.0, "LASTNAME": 0.0, "all": 0.6}
    assert character_recall([Sentence("nothing", (), 0)], [[Span(0, 7, "SSN")]]) == {}
