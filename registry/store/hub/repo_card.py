"""The README.md of a registry on the Hugging Face Hub, shown to visitors in a browser.

Each model has a section between two marks. A push rewrites its own model's section and nothing else, so that text of
people, and sections of other models, stay.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.core.text_files import VALUE_ERRORS
from onnxreg.schema.log.state import State

PATH = "README.md"
MAX_LISTED_VERSIONS = 20
"""Versions without a summary that are named."""
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)^---[ \t]*\r?\n", re.DOTALL | re.MULTILINE)
EMPTY_CARD = """---
library_name: onnxreg
tags:
- onnx
- onnxreg
---

# ONNX models

A registry of exported ONNX models: every file under `blobs/` is named by its SHA-256, every move of a name is on record.
"""


def updated(
    card: str | None,
    name: str,
    index: bytes,
    url: str,
    description: str | None = None,
    loading: Sequence[str] = (),
) -> str | None:
    """The card (None: there is none yet) with a model's section as its index file says. None if it says nothing.

    `loading` are lines about other libraries, at the end of the section.
    """
    try:
        state = State.decode(index.partition(b"\n")[0])
        section = "\n".join([*_section(state, url, description), *(["", *loading] if loading else [])])
    except InputError:
        return None
    text = EMPTY_CARD if card is None else card
    begin, end = f"<!-- onnxreg {name} -->", f"<!-- /onnxreg {name} -->"
    section_pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    block = f"{begin}\n{section}\n{end}"
    if section_pattern.search(text):
        return section_pattern.sub(lambda _: block, text, count=1)
    return f"{text.rstrip()}\n\n{block}\n"


def described(card: str, metadata: Mapping[str, Any], written: Mapping[str, Any]) -> str:
    """The card with this metadata in place of what was `written` before; the keys of people stay.

    Its metadata is written anew as YAML, by itself: `ModelCard` of huggingface_hub leaves out keys that are null, and
    changes a `model-index`. Unchanged if nothing else is to be said, or if its metadata cannot be read.
    """
    import yaml

    match = _FRONT_MATTER.match(card)
    try:
        value = yaml.safe_load(match[1]) if match else {}
    except (yaml.YAMLError, RecursionError, *VALUE_ERRORS):
        return card
    if not isinstance(value, dict):
        return card
    of_people = {key: item for key, item in value.items() if key not in written or written[key] != item}
    new = {**of_people, **{key: item for key, item in metadata.items() if key not in of_people}}
    text = yaml.safe_dump(new, sort_keys=False, allow_unicode=True)
    return card if new == value else f"---\n{text}---\n{card[match.end() :] if match else card}"


def _section(state: State, url: str, description: str | None) -> Iterator[str]:
    """The versions that have a summary in the state line, one row for each artifact; the others are counted."""
    channels = (channel.version for channel in state.channels.values())
    versions = dict.fromkeys((*state.newest, *state.versions, *channels))
    remaining = [
        version for version in versions if not (entry := state.versions.get(version)) or not entry.dropped
    ]
    remaining.sort(key=lambda version: version.precedence, reverse=True)
    listed_versions = [version for version in remaining if version in state.summaries]
    yield f"## {state.name}"
    yield ""
    if description:
        yield from (_cell(description), "")
    if listed_versions:
        yield "| version | artifact | precision | size | certification |"
        yield "|---|---|---|---:|---|"
    for version in listed_versions:
        yield from _rows(state, version)
    older = [version for version in remaining if version not in listed_versions]
    if older or state.checkpoint is not None:
        names = [*map(str, older[:MAX_LISTED_VERSIONS]), f"see `reg log {state.name}`"]
        yield from ("", f"Other versions: {', '.join(names)}")
    newest = f":{listed_versions[0]}" if listed_versions else ""
    yield from ("", "```", f"reg pull {state.name}{newest} {url}", "```")


def _rows(state: State, version: Version) -> Iterator[str]:
    summary, entry = state.effective_summary(version), state.versions.get(version)
    notes = sorted(tag for tag, channel in state.channels.items() if channel.version == version)
    if entry is not None and (status := entry.status(summary)):
        notes.append(status)
    label = f"{version} ({', '.join(notes)})" if notes else str(version)
    for artifact, size in summary.downloads(entry.held if entry else None) if summary else ():
        cells = (label, artifact.format, artifact.precision, _size(size), artifact.state)
        yield f"| {' | '.join(map(_cell, cells))} |"


def _size(count: int) -> str:
    """Bytes in decimal units, as the Hub itself shows them."""
    exponent = max(0, min(4, (len(str(count)) - 1) // 3))
    return (
        f"{count} B"
        if not exponent
        else f"{count / 1000**exponent:.1f} {('', 'k', 'M', 'G', 'T')[exponent]}B"
    )


def _cell(text: str) -> str:
    """Text that stays inside its cell: no markup of a manifest reaches the page."""
    plain = re.sub(r"[\s\x00-\x1f]+", " ", text)
    return re.sub(r"([\\|`*_<>\[\]&#])", r"\\\1", plain)
