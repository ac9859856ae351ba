"""The labels of a suite's gold and those of a model: which mean the same.

OpenMed compares canonical names: it gives `FIRSTNAME` and `first_name` the name FIRST_NAME, and NAME and `patient` the
name PERSON. `openmed_labels.json` has these names with their other spellings, without separators, as facts about OpenMed
(openmed/core/labels.py, Apache-2.0).
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from onnxreg.converters.evaluation.suite import Fixture, TextSpan
from onnxreg.schema.core.errors import InputError, suggest
from onnxreg.schema.inputs.recipe_file import EvaluationRequest


def match_labels(
    items: Sequence[Fixture], labels: Sequence[str], request: EvaluationRequest
) -> tuple[list[Fixture], dict[str, Any]]:
    """Give the gold the labels of the model, and return what was matched, in JSON form, for the certificate.

    A label that a person maps or excludes is matched by that alone. Any other is matched by its exact spelling, else by
    the only label of the model that differs in case and separators, or in the spellings of `label_names`. What matches
    nothing keeps its label.

    Raises InputError if a person maps to a label that the model does not have, or leaves out one that it has.
    """
    aliases = _aliases() if request.label_names == "openmed" else {}
    spelled: dict[str, list[str]] = {}
    for label in labels:
        spelled.setdefault(_canonical(label, aliases), []).append(label)
    gold = Counter(span.label for item in items for span in item.spans)
    for name, target in request.label_map.items():
        if target is None and name in labels:
            raise InputError(
                f"the label map leaves out {name[:80]}, which is a label of the model",
                "only gold that the model cannot give may be left out",
            )
    matched: dict[str, str] = {}
    for name in sorted(gold.keys() - set(labels) | gold.keys() & request.label_map.keys()):
        target = request.label_map.get(name, name)
        if target is None:
            continue
        if name in request.label_map and target not in labels:
            raise InputError(
                f"the label map gives {name[:80]} the label {target[:80]}, which the model does not have",
                suggest(target, labels),
            )
        same = [target] if name in request.label_map else spelled.get(_canonical(name, aliases), [])
        matched |= {name: same[0]} if len(same) == 1 else {}
    excluded = {name: gold[name] for name in sorted(gold) if request.label_map.get(name, name) is None}
    facts: dict[str, Any] = {"label_map": matched} if matched else {}
    facts |= {"excluded_labels": excluded} if excluded else {}
    return relabel(items, {**matched, **dict.fromkeys(excluded)}), facts


def relabel(items: Sequence[Fixture], names: Mapping[str, str | None]) -> list[Fixture]:
    """Give spans the labels of a map; those of None are left out, and two that overlap under one label are one."""
    return [replace(item, spans=_relabel(item.spans, names)) for item in items]


def _relabel(spans: Iterable[TextSpan], names: Mapping[str, str | None]) -> tuple[TextSpan, ...]:
    renamed = [
        replace(span, label=label)
        for span in spans
        if (label := names.get(span.label, span.label)) is not None
    ]
    merged: list[TextSpan] = []
    for span in sorted(renamed, key=lambda span: (span.label, span.start)):
        last = merged[-1] if merged else None
        if last is not None and last.label == span.label and span.start < last.end:
            merged[-1] = replace(last, end=max(last.end, span.end))
        else:
            merged.append(span)
    return tuple(merged)


def openmed_names() -> dict[str, list[str]]:
    """OpenMed's names with their other spellings; a name that is not there has one spelling."""
    value: dict[str, list[str]] = json.loads(Path(__file__).with_name("openmed_labels.json").read_bytes())
    return value


def _aliases() -> dict[str, str]:
    return {_plain(word): name for name, words in openmed_names().items() for word in words}


def _canonical(label: str, aliases: Mapping[str, str]) -> str:
    return _plain(aliases.get(_plain(label), label))


def _plain(label: str) -> str:
    """A label without separators, in one case of letters."""
    return "".join(filter(str.isalnum, label.casefold()))
