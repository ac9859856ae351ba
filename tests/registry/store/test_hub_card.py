"""The metadata of a card: what people wrote keeps its meaning."""

import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from onnxreg.registry.store.hub import described

CARD = """---
# who may use it
license: "mit"  # as in LICENSE
model-index:
- name: old
  results: []
# languages of the texts
language: [en,
  de]
pipeline_tag: fill-mask

---
# Title
"""
WRITTEN = {"model-index": [{"name": "old", "results": []}], "pipeline_tag": "fill-mask"}


def metadata(card: str) -> dict[str, Any]:
    """The values between the first two lines `---`; a value may have these characters too."""
    return dict(yaml.safe_load(re.split(r"^---\n", card, flags=re.MULTILINE)[1]))


@pytest.mark.parametrize(
    "front",
    [
        "{license: mit, tags: [a]}\n",
        "license: &l mit\nother: *l\ntags: [a]\n",
        "license: mit\ntags: |\n  a\n\n",
    ],
)
def test_values_are_kept_in_any_style(front):
    card = f"---\n{front}---\ntext\n"
    before = yaml.safe_load(front)
    new = described(card, {"tags": ["b"]}, {"tags": before["tags"]})
    assert metadata(new) == before | {"tags": ["b"]} and new.endswith("---\ntext\n")


@pytest.mark.parametrize("value", ["2020-13-45", "!!bool foo", "!!timestamp foo", '!!int ""'])
def test_a_card_whose_metadata_cannot_be_read_stays(value):
    card = f"---\ndate: {value}\n---\ntext\n"
    assert described(card, {"license": "mit"}, {}) == card


VALUES = st.recursive(
    st.text("ab #:-'\"\n", max_size=8) | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("xy", min_size=1), inner, max_size=2),
    max_leaves=4,
)


@example(people={}, written={}, next_time={"a": "a---"})
@example(people={}, written={}, next_time={"a": "---\n"})
@given(
    people=st.dictionaries(st.sampled_from("abcdef"), VALUES),
    written=st.dictionaries(st.sampled_from("uvwxyz"), VALUES),
    next_time=st.dictionaries(st.sampled_from("abuvwxyz"), VALUES),
)
def test_the_values_are_those_of_people_and_ours(people, written, next_time):
    text = "".join(
        f"# about {key}\n{yaml.safe_dump({key: value})}" for key, value in {**people, **written}.items()
    )
    new = described(f"---\n{text or '{}'}\n---\n", next_time, written)
    assert metadata(new) == {**next_time, **people}
