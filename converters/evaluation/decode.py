"""From the tags of tokens to the labels of characters: one decoder for every model that is compared."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NOTHING = -1
"""The label of a character that no entity covers."""

_PREFIX = re.compile(r"([BILUES])[-_](.+)", re.DOTALL)

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class TagScheme:
    """The scheme by which a model's tags spell labels: BIO, BIOES, BILOU or IO.

    `names` are the labels without prefixes, in first-seen order. The other three have one item per tag: the index
    of its label (`NOTHING` for the outside tag), whether it always begins an entity, whether it always ends one.
    """

    names: tuple[str, ...]
    label: tuple[int, ...]
    begins: tuple[bool, ...]
    ends: tuple[bool, ...]


def tag_scheme(tags: Sequence[str]) -> TagScheme:
    """Read the scheme from a model's own tags, in the order of its logits.

    What looks like a prefix is one if the `B` tag of the same label exists, and `B` or `I` also if every tag
    but `O` looks prefixed; so `E-MAIL` stays whole in a model without `B-MAIL`.
    """
    inside = [tag for tag in tags if tag != "O"]
    all_prefixed = all(_PREFIX.fullmatch(tag) for tag in inside)
    split = [_split(tag, all_prefixed, set(inside)) for tag in tags]
    names = tuple(dict.fromkeys(name for _, name in split if name))
    number = {"": NOTHING} | {name: index for index, name in enumerate(names)}
    return TagScheme(
        names,
        tuple(number[name] for _, name in split),
        tuple(prefix in {"B", "S", "U"} for prefix, _ in split),
        tuple(prefix in {"E", "L", "S", "U"} for prefix, _ in split),
    )


def _split(tag: str, all_prefixed: bool, tags: set[str]) -> tuple[str, str]:
    if tag == "O":
        return "", ""
    match = _PREFIX.fullmatch(tag)
    if match is None:
        return "", tag
    prefix, name = match.groups()
    begun = not tags.isdisjoint({f"B-{name}", f"B_{name}"})
    return (prefix, name) if begun or (all_prefixed and prefix in "BI") else ("", tag)


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
