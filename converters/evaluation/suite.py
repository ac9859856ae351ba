"""Evaluation suites. A suite is a file with items for a task, such as a JSON object in each line.

The items of a token classifier are texts with gold spans, in OpenMed's format. Their labels are matched with the
model's by OpenMed's canonical names: FIRSTNAME and `first_name` both mean FIRST_NAME. `openmed_labels.json` has the
names (openmed/core/labels.py, Apache-2.0).
"""

import codecs
import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest, convert
from onnxreg.schema.core.errors import InputError, suggest
from onnxreg.schema.core.files import read_given
from onnxreg.schema.inputs.recipe_file import EvaluationRequest

SUITE, MAX_BYTES = "evaluation suite", 256 * 2**20
AS_JSON = "a suite is a list in JSON, or one JSON object a line in a .jsonl file"
ID_KEYS = ("id", "fixture_id")
SPANS_KEYS = ("gold_spans", "entities")
LABEL_KEYS = ("canonical_label", "label", "entity_type", "entity_group", "entity")
"""The keys that may have a span's label. The first that has a value counts, as in OpenMed."""
Word = Annotated[str, msgspec.Meta(min_length=1)]


class TextSpan(msgspec.Struct, frozen=True):
    """A labelled part of a text, from `start` to before `end`, in code points."""

    start: int
    end: int
    label: Word


class Fixture(msgspec.Struct, frozen=True):
    """A text and its gold spans (the right answer). Spans of different labels may overlap."""

    text: Word
    spans: tuple[TextSpan, ...]


def read_fixture(row: dict[str, Any], position: str) -> Fixture:
    """Read a fixture from `{text, gold_spans: [{start, end, label, text?}]}`. Raise InputError if it is malformed."""
    text, rows = convert(row.get("text"), Word, f"{position}: `text`"), first(row, SPANS_KEYS)
    spans = []
    for number, value in enumerate(convert(rows, list[dict[str, Any]], f"{position}: `gold_spans`"), start=1):
        at = f"{position}, span {number}"
        span = convert({**value, "label": first(value, LABEL_KEYS)}, TextSpan, at)
        if not 0 <= span.start < span.end <= len(text):
            message = f"{at}: offsets {span.start}-{span.end} are outside a text of {len(text)} characters"
            raise InputError(message, "offsets are half-open and count code points from 0")
        if value.get("text") not in (None, text[span.start : span.end]):
            message = f"{at}: `text` is not the text at {span.start}-{span.end}"
            raise InputError(message, "offsets count code points, not bytes or UTF-16 units")
        spans.append(span)
    spans.sort(key=lambda span: (span.label, span.start))
    for left, right in pairwise(spans):
        if left.label == right.label and right.start < left.end:
            raise InputError(f"{position}: two gold spans of one label overlap", "merge them, or drop one")
    return Fixture(text, tuple(spans))


@dataclass(frozen=True)
class Suite:
    """The items of a file, and the digest of the file's bytes.

    `groups` has the group number of each item. Items of the same group depend on each other, such as texts of a
    document. `synthetic` is True if an item is made up, False if none is, None if unknown. `positions` are the items'
    places in the file. `identities` are equal for items with the same model input.
    """

    digest: Digest
    items: tuple[Any, ...]
    groups: tuple[int, ...]
    synthetic: bool | None = None
    positions: tuple[str, ...] = ()
    identities: tuple[Hashable, ...] = ()

    def half(self, name: str, seed: int) -> "Suite":
        """Return a random half of the groups, with all their items. `name` is `choose` or `confirm`."""
        order = np.random.RandomState(seed).permutation(max(self.groups, default=-1) + 1).tolist()
        middle = (len(order) + 1) // 2
        chosen = set(order[:middle] if name == "choose" else order[middle:])
        key = {"suite": str(self.digest), "half": name, "seed": seed}
        is_kept = [group in chosen for group in self.groups]
        names = ("items", "groups", "positions", "identities")
        columns: dict[str, Any] = {name: tuple(compress(getattr(self, name), is_kept)) for name in names}
        return Suite(Digest.of(canonical.encode(key)), synthetic=self.synthetic, **columns)


def load(evaluator: Any, path: Path) -> Suite:
    """Read a suite for a `TaskEvaluator` class.

    An item may have an `id`, a `group` (text or integer), and `metadata: {source}`, such as `synthetic`. Raises
    NotFoundError if the file is missing, InputError if it is malformed. The message never quotes an item.
    """
    data = read_given(path, SUITE, limit=MAX_BYTES)
    items, ids = dict[str, Any](), dict[str, str]()
    groups, sources = dict[str, str | int | None](), set[bool | None]()
    for position, row in evaluator.rows(data, path):
        items[position] = evaluator.read_item(row, position, path.parent)
        identity, groups[position] = first(row, ID_KEYS), row.get("group")
        for key, value in (("id", identity), ("group", groups[position])):
            if value is not None and type(value) not in (str, int):
                raise InputError(f"{position}: `{key}` is neither text nor an integer")
        if identity is not None:
            ids[position] = str(identity)
        metadata = row.get("metadata")
        source = metadata.get("source") if isinstance(metadata, dict) else None
        word = source.strip() if isinstance(source, str) else ""
        sources.add("synthetic" in word.lower() if word else None)
    identities = {position: evaluator.identity(item) for position, item in items.items()}
    check_unique(ids, "its id")
    for name, values in zip(evaluator.distinct, (items, identities), strict=True):
        if name is not None:
            check_unique(values, name)
    alone = [position for position, group in groups.items() if group is None]
    if 0 < len(alone) < len(groups):
        raise InputError(f"{alone[0]}: `group` is missing, and others have one")
    digest, names = Digest.of(data), list(groups if alone else groups.values())
    if evaluator.has_files:
        covered = {"suite": str(digest), "files": list(map(str, identities.values()))}
        digest = Digest.of(canonical.encode(covered))
    numbers = {group: number for number, group in enumerate(dict.fromkeys(names))}
    return Suite(
        digest,
        tuple(items.values()),
        tuple(numbers[group] for group in names),
        True if True in sources else False if sources == {False} else None,
        tuple(items),
        tuple(identities.values()),
    )


def check_unique(values: Mapping[str, Hashable], name: str) -> None:
    earliest: dict[Hashable, str] = {}
    for position, value in values.items():
        if earliest.setdefault(value, position) is not position:
            before = earliest[value].rpartition(", ")[2]
            hint = "items and their ids are unique: an item that counts twice makes an interval too narrow"
            raise InputError(f"{position}: {name} was used before, at {before}", hint)


def json_rows(data: bytes, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each item's position and fields. `data` is JSON lines, a list, or an object with `items` or `fixtures`."""
    suite, data = f"evaluation suite {path}", data.removeprefix(codecs.BOM_UTF8)
    if path.suffix.lower() == ".jsonl":
        lines = ((f"{suite}, line {number}", line) for number, line in enumerate(data.split(b"\n"), start=1))
        rows: Any = ((position, _decode(line, position)) for position, line in lines if line.strip())
    else:
        value = _decode(data, suite)
        items = value.get("items", value.get("fixtures")) if isinstance(value, dict) else value
        if not isinstance(items, list):
            message = f"{suite} is neither a list of items nor an object with a list `items` or `fixtures`"
            raise InputError(message, AS_JSON)
        rows = ((f"{suite}, item {number}", item) for number, item in enumerate(items, start=1))
    for position, row in rows:
        if not isinstance(row, dict):
            raise InputError(f"{position}: not an object")
        yield position, row


def _decode(data: bytes, label: str) -> Any:
    try:
        return canonical.decode(data, label, MAX_BYTES)
    except InputError as error:
        problem = error.message.removeprefix(label).partition(":")[0]
        raise InputError(
            f"{label}{problem}", f"{AS_JSON}; numbers are finite, and no key occurs twice in an object"
        ) from None


def first(value: dict[str, Any], keys: tuple[str, ...]) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def match_labels(
    items: Sequence[Fixture], labels: Sequence[str], request: EvaluationRequest
) -> tuple[list[Fixture], dict[str, Any]]:
    """Replace gold labels by the model's labels. Return the new items, and the replacements for the certificate.

    The user's label map comes first. Any other label is replaced if exactly one label of the model has the same name,
    whatever the case and separators. With `label_names`, OpenMed's spellings of a name are equal, too. Raises
    InputError if the label map gives a label that the model lacks, or leaves out a label that it has.
    """
    openmed = Path(__file__).with_name("openmed_labels.json")
    names = json.loads(openmed.read_bytes()) if request.label_names == "openmed" else {}
    aliases = {_plain(word): name for name, words in names.items() for word in words}

    def canonical_name(label: str) -> str:
        return _plain(aliases.get(_plain(label), label))

    spelled: dict[str, list[str]] = {}
    for label in labels:
        spelled.setdefault(canonical_name(label), []).append(label)
    gold = Counter(span.label for item in items for span in item.spans)
    for name, target in request.label_map.items():
        if target is None and name in labels:
            message = f"the label map leaves out {name[:80]}, which is a label of the model"
            raise InputError(message, "only gold that the model cannot give may be left out")
        if target is not None and target not in labels:
            message = (
                f"the label map gives {name[:80]} the label {target[:80]}, which the model does not have"
            )
            raise InputError(message, suggest(target, labels))
    stated = {name: target for name, target in sorted(request.label_map.items()) if name in gold}
    matched = {name: target for name, target in stated.items() if target is not None}
    for name in gold.keys() - {*labels, *stated}:
        if len(same := spelled.get(canonical_name(name), [])) == 1:
            matched[name] = same[0]
    excluded = {name: gold[name] for name, target in stated.items() if target is None}
    facts = {"label_map": matched, "excluded_labels": excluded}
    relabelled = relabel(items, {**matched, **dict.fromkeys(excluded)})
    return relabelled, {key: value for key, value in facts.items() if value}


def relabel(items: Sequence[Fixture], names: Mapping[str, str | None]) -> list[Fixture]:
    """Replace the labels of spans. Drop spans whose new label is None, and merge overlapping spans of a label."""
    relabelled = []
    for item in items:
        renamed = [
            replace(span, label=label)
            for span in item.spans
            if (label := names.get(span.label, span.label)) is not None
        ]
        merged: list[TextSpan] = []
        for span in sorted(renamed, key=lambda span: (span.label, span.start)):
            if merged and merged[-1].label == span.label and span.start < merged[-1].end:
                merged[-1] = replace(merged[-1], end=max(merged[-1].end, span.end))
            else:
                merged.append(span)
        relabelled.append(replace(item, spans=tuple(merged)))
    return relabelled


def _plain(label: str) -> str:
    return "".join(filter(str.isalnum, label.casefold()))
