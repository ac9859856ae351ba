"""From the tags of tokens to the labels of characters: one decoder for every model that is compared."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxreg.converters.evaluation.scores import Integers

NOTHING = -1
"""The label of a character that no entity covers."""

_MARKS, _JOINTS = "BILUESM", "-_:/."
_PATTERNS = tuple(
    re.compile(pattern, re.DOTALL | re.IGNORECASE)
    for joint in map(re.escape, _JOINTS)
    for pattern in (rf"(?P<mark>[{_MARKS}]){joint}(?P<name>.+)", rf"(?P<name>.+){joint}(?P<mark>[{_MARKS}])")
)
"""The ways to write the mark of a tag: `B-NAME`, `b_name`, `NAME-B`, and so on."""


@dataclass(frozen=True)
class TagScheme:
    """The scheme by which a model's tags spell labels: BIO, BIOES, BILOU, BMES or IO, in any case of letters.

    `names` are the labels without marks, in first-seen order. The other three have one item per tag: the index
    of its label (`NOTHING` for the outside tag), whether it always begins an entity, whether it always ends one.
    """

    names: tuple[str, ...]
    label: tuple[int, ...]
    begins: tuple[bool, ...]
    ends: tuple[bool, ...]


def tag_scheme(tags: Sequence[str]) -> TagScheme:
    """Read the scheme from a model's own tags, in the order of its logits.

    Tags have marks if a label has a mark B and another one, or if every tag but `O` begins with B or I. A mark is read
    if the label has a tag with B too, and B or I also if every tag has a mark; so `E-MAIL` stays whole in a model
    without `B-MAIL`, and `HEPATITIS_B` in one without `HEPATITIS_I`.
    """
    inside = [tag for tag in tags if tag not in ("O", "o")]
    split = {tag: ("", tag) for tag in inside}
    for pattern in _PATTERNS:
        matches = [match for tag in inside if (match := pattern.fullmatch(tag))]
        pairs = {match[0]: (match["mark"].upper(), match["name"]) for match in matches}
        is_prefix, is_every_tag = pattern.pattern.startswith("(?P<mark>"), 0 < len(matches) == len(inside)
        begun = {name for mark, name in pairs.values() if mark == "B"}
        continued = {name for mark, name in pairs.values() if mark in "IM" or (is_prefix and mark != "B")}
        is_io = is_prefix and is_every_tag and {mark for mark, _ in pairs.values()} <= {"B", "I"}
        if begun & continued or is_io:
            for tag, (mark, name) in pairs.items():
                if name in begun or (is_every_tag and mark in "BI"):
                    split[tag] = mark, name
            break
    names = tuple(dict.fromkeys(name for _, name in split.values()))
    marks = [split.get(tag, ("", ""))[0] for tag in tags]
    return TagScheme(
        names,
        tuple(names.index(split[tag][1]) if tag in split else NOTHING for tag in tags),
        tuple(mark in {"B", "S", "U"} for mark in marks),
        tuple(mark in {"E", "L", "S", "U"} for mark in marks),
    )


def decode(tags: Integers, offsets: Integers, length: int, scheme: TagScheme) -> Integers:
    """The label of every character of a text.

    Neighbouring tokens of one label form one entity, the characters between them included, unless the scheme says
    that the left one ends it or the right one begins another.

    Args:
        tags: (tokens,), an index into the model's tags for each token of the text, in reading order.
        offsets: (tokens, 2), the half-open range of code points of each; an empty range is passed over.
        length: code points in the text.

    Returns:
        (length,), an index into `scheme.names`, or `NOTHING`.
    """
    labels = np.full(length, NOTHING, dtype=np.int64)
    current, reach = NOTHING, 0
    for tag, (start, end) in zip(tags.tolist(), offsets.tolist(), strict=True):
        if start >= end:
            continue
        label = scheme.label[tag]
        joins = label == current and not scheme.begins[tag]
        labels[reach if joins else start : end] = label
        current, reach = NOTHING if scheme.ends[tag] else label, end
    return labels
