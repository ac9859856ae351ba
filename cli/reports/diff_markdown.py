"""A difference as Markdown, for a pull request or the summary of a build."""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from onnxreg.cli.render import manifest_view, output
from onnxreg.cli.reports.deep_diff import lines as deep_lines
from onnxreg.registry.server.pages.views import ArtifactPair, artifact_pairs, trend
from onnxreg.schema.compare.graphs import DeepDiff
from onnxreg.schema.compare.manifests import ManifestDiff

if TYPE_CHECKING:
    from onnxreg.registry.read.versions import PublishedVersion

OPEN = ("breaking", "degrading")
"""Severities whose changes are shown at once; the others can be unfolded."""


def markdown(
    old: "PublishedVersion",
    new: "PublishedVersion",
    changes: ManifestDiff,
    deep: list[DeepDiff] | None = None,
) -> str:
    """The whole text, with a newline at its end."""
    parts = [f"### {escaped(f'{old.ref} → {new.ref}')}", "", f"**{escaped(changes.summary)}**"]
    parts += _list(manifest_view.doubts_of((old, new)))
    for pair in artifact_pairs(old, new):
        header = f"{escaped(str(old.version))} | {escaped(str(new.version))}"
        parts += _figures(pair, "recall", _recalls(pair), header)
        parts += _figures(pair, "metrics", _metrics(pair), header)
    for severity, count in changes.counts.items():
        messages = [escaped(change.message) for change in changes.changes if change.severity == severity]
        if count:
            parts += _group(f"{count} {severity}", [f"- {message}" for message in messages], severity in OPEN)
    if deep:
        inside = "\n".join(deep_lines(deep)).replace("```", "'''")
        parts += _group("inside the files", [f"```text{inside}\n```"], is_open=False)
    return "\n".join(parts) + "\n"


def _list(lines: Iterable[str]) -> list[str]:
    items = [f"- {escaped(line)}" for line in lines]
    return ["", *items] if items else []


def escaped(text: str) -> str:
    """Text from somebody's document, escaped so that Markdown and HTML read it as text only."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|&~$@-])", r"\\\1", output.printable(text))


Row = tuple[str, float, float, str]
"""The name of a figure, its value before and after, and the trend in a word, if it must be said."""


def _recalls(pair: ArtifactPair) -> list[Row]:
    return [(label, old.value, new.value, "") for label, old, new in pair.recalls() if old and new]


def _metrics(pair: ArtifactPair) -> list[Row]:
    return [
        (name, old.value, new.value, trend(old, new).replace("quiet", ""))
        for name, old, new in pair.metrics()
        if old and new and old.value is not None and new.value is not None
    ]


def _figures(pair: ArtifactPair, title: str, rows: Iterable[Row], header: str) -> Iterator[str]:
    """The figures of one artifact that changed, in a table; one line if they were measured on another suite."""
    changed = [row for row in rows if row[1] != row[2]]
    if changed and not pair.is_comparable:
        yield from ("", f"{title} of {escaped(pair.path)}: measured on another suite, so not compared")
        return
    if changed:
        yield from ("", f"| {title} of {escaped(pair.path)} | {header} | change |")
        yield "|---|---:|---:|---:|"
    for name, before, after, word in changed:
        change = f"{after - before:+.4f} {word}".strip()
        yield f"| {escaped(name)} | {before:.4f} | {after:.4f} | {change} |"


def _group(title: str, body: list[str], is_open: bool) -> list[str]:
    if is_open:
        return ["", f"#### {title}", "", *body]
    return ["", f"<details><summary>{title}</summary>", "", *body, "", "</details>"]
