"""A manifest as people read it: artifacts, verdicts, checks, companions, recipe."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from onnxreg.cli.render.output import counted, number, printable, size, table
from onnxreg.schema.manifest.vocabulary import UNJUDGED
from onnxreg.schema.query.runtimes import NEWEST

if TYPE_CHECKING:
    from onnxreg.registry.log.lookup import Release
    from onnxreg.schema.gates.statements import BenchmarkDocument
    from onnxreg.schema.manifest.manifest import Artifact, Manifest, Source
    from onnxreg.schema.manifest.parts import Check, Step


ON_THE_CPU = "  such operators run on the CPU; NNAPI and XNNPACK may leave them to it"


def facts(manifest: Manifest) -> Iterator[str]:
    """`key  value` lines, folded at 80 columns, of what is known of the version as a whole."""
    source, labels = manifest.source, manifest.labels or ()
    rows: dict[str, str | None] = {
        "about": manifest.description,
        "task": manifest.task,
        "family": manifest.family,
        "members": _members(manifest),
        "license": manifest.license,
        "source": _source(source, manifest.name) if source else None,
        "labels": f"{len(labels)}: {', '.join(labels[:6])}{', ...' if len(labels) > 6 else ''}"
        if labels
        else None,
    }
    yield from keyed(rows)


def making(manifest: Manifest) -> Iterator[str]:
    """The same of its recipe, and the tools that ran it."""
    if recipe := manifest.recipe:
        tools = ", ".join(f"{tool} {version}" for tool, version in sorted(recipe.tools.items()))
        yield from keyed({"recipe": f"{recipe.profile} v{recipe.profile_version}", "tools": tools})


def keyed(rows: Mapping[str, str | None]) -> Iterator[str]:
    """`key  value` lines, folded at 80 columns; without those that have no value."""
    for key, value in rows.items():
        if value:
            yield from wrap(
                printable(value),
                80,
                initial_indent=f"{key:<9}",
                subsequent_indent=" " * 9,
                break_on_hyphens=False,
            )


def _source(source: Source, name: str) -> str:
    """A hub id, or the name in another registry. Files from somebody's machine have no name."""
    if source.id == name and source.revision is None:
        return f"local files, digest {source.digest.short}..." if source.digest else "local files"
    return f"{source.id}@{source.revision}" if source.revision else source.id


def _members(manifest: Manifest) -> str | None:
    """`1 backbone, 320 head, 1 ood`, of a family; the names of a pipeline's stages."""
    if manifest.model_family is None:
        return None
    if stages := manifest.model_family.stages:
        return ", ".join(member.name for member in stages)
    roles = Counter(member.role for member in manifest.model_family.members)
    return ", ".join(f"{count} {role}" for role, count in roles.items())


def artifacts(version: Release) -> Iterator[str]:
    """One row for each artifact, in the manifest's order. If some are missing here, a column says which.

    Heads of a family that are of one kind share a row.
    """
    manifest, present = version.manifest, version.held
    states = {artifact_state.path: artifact_state.state for artifact_state in version.states}
    heads, stages = manifest.heads, manifest.stages
    rows = [
        _row([item], item.path, states[item.path], present)
        for item in manifest.artifacts
        if item.path not in heads
    ]
    together: dict[tuple[str, str, str], list[Artifact]] = {}
    for item in manifest.artifacts:
        if item.path in heads:
            together.setdefault((item.format, item.precision, states[item.path]), []).append(item)
    rows += [_row(items, f"{len(items)} heads", state, present) for (_, _, state), items in together.items()]
    heading: tuple[str, ...] = ("ARTIFACT", "FORMAT", "PRECISION", "SIZE", "CERTIFICATION", "HELD")
    if stages:
        heading, rows = ("MEMBER", *heading), [(stages.get(row[0], ""), *row) for row in rows]
    yield from table(heading, rows)


def _row(
    items: Sequence[Artifact], name: str, state: str, present: Collection[str] | None
) -> tuple[str, ...]:
    first, here = items[0], sum(present is None or item.path in present for item in items)
    share = f"{here} of {len(items)}" if len(items) > 1 else "yes" if here else "no"
    return (
        name,
        first.format,
        first.precision,
        size(sum(item.own_size for item in items)),
        worded_state(state, items),
        "" if present is None else share,
    )


def worded_state(state: str, items: Iterable[Artifact]) -> str:
    """The state of artifacts, and if they are certified though the interval of a loss reaches the limit."""
    is_wide = state == "certified" and any(item.reaches_limit for item in items)
    return f"{state}, interval above the limit" if is_wide else state


def benchmark(document: BenchmarkDocument) -> Iterator[str]:
    """The machine of a benchmark, and one row for each batch size of each artifact."""
    threads = "1 thread" if document.threads == 1 else f"{document.threads} threads"
    yield printable(f"{document.cpu} ({document.isa}), {threads}, {document.runtime}, {document.runs} runs")
    rows = [
        (item.path, check.name, check.metric, "" if check.value is None else f"{check.value:g}")
        for item in document.artifacts
        for check in item.checks
    ]
    yield from table(("ARTIFACT", "CHECK", "METRIC", "VALUE"), rows)


def translation(version: Release) -> Iterator[str]:
    """A table of the fields of another tool's document and what each became, if the recipe was one."""
    recipe = version.manifest.recipe
    recorded = recipe.parameters.get("recipe") if recipe else None
    fields = recorded.get("translation", ()) if isinstance(recorded, Mapping) else ()
    if fields:
        rows = [
            (printable(field["field"]), json.dumps(field["value"]), printable(field["became"]))
            for field in fields
        ]
        yield from table(("FIELD", "VALUE", "BECAME"), rows)


def remarks(version: Release) -> Iterator[str]:
    """Notes for people who rely on a version: verdicts with reasons, warnings, skipped steps."""
    manifest = version.manifest
    states = {artifact_state.path: artifact_state.state for artifact_state in version.states}
    for item in manifest.artifacts:
        yield from verdict(item, states[item.path])
        if outside := item.metadata.unsupported_ops:
            yield f"note: {item.path}: outside the mobile-safe operators: {', '.join(map(printable, outside))}"
        yield from (f"warning: {item.path}: {printable(text)}" for text in _warnings(item))
        if (opset := item.metadata.opset or 0) > NEWEST.opset:
            yield f"warning: {item.path}: no release of ONNX Runtime known here loads opset {opset}, only up to {NEWEST.opset}"
        yield from _larger_than_half(item, manifest)
        if not item.reproducible:
            yield f"note: {item.path}: its bytes may differ when it is converted again"
    if any(item.metadata.unsupported_ops for item in manifest.artifacts):
        yield ON_THE_CPU
    for step in _skipped(manifest):
        yield f"skipped: {printable(step.name)}: {printable(step.skipped or '')}"


def search(version: Release) -> Iterator[str]:
    """The candidates of a search with their figures on the suite that it chose on, if the version came from one."""
    recipe = version.manifest.recipe
    record = recipe.parameters.get("search") if recipe else None
    if not isinstance(record, Mapping):
        return
    rows = [
        (
            printable(trial["candidate"]),
            size(trial["bytes"]) if "bytes" in trial else "",
            "" if "median_ms" not in trial else f"{trial['median_ms']:.3g} ms",
            ", ".join(_loss(figure) for figure in trial.get("metrics", ())),
            printable(trial["state"]),
        )
        for trial in record["candidates"]
        if trial["state"] != "untried"
    ]
    tried, total, winner = record["tried"], counted(len(record["candidates"]), "candidate"), record["winner"]
    yield f"tried {tried} of {total} on the suite to choose on; the winner is {printable(winner)}"
    yield from table(("CANDIDATE", "SIZE", "MEDIAN", "LOSS", "VERDICT"), rows)
    winner_file = next(
        (item for item in version.manifest.artifacts if item.path == record.get("output")), None
    )
    if winner_file is not None:
        losses = [
            check for check in winner_file.checks if check.interval is not None and check.limit is not None
        ]
        figures = ", ".join(_loss_check(check) for check in losses)
        yield f"on the suite to confirm on: {printable(winner_file.path)} {figures}: {winner_file.certification.state}"


def _loss_check(check: Check) -> str:
    low, high = check.interval or (None, None)
    return f"{printable(check.label)} {number(check.value)} ({number(low)} to {number(high)})"


def _loss(figure: Mapping[str, Any]) -> str:
    """A loss with its 95 % interval."""
    interval = figure.get("interval")
    bounds = "" if interval is None else f" ({number(interval[0])} to {number(interval[1])})"
    return f"{printable(figure['metric'])} {number(figure['loss'])}{bounds}"


def next_steps(version: Release) -> Iterator[str]:
    """The next command: to publish a certified artifact, or to get one in place of a refused one."""
    states = {artifact_state.path: artifact_state.state for artifact_state in version.states}
    refused = [item.path for item in version.manifest.artifacts if states[item.path] == "refused"]
    judged = [item for item in version.manifest.artifacts if item.certification.rule is not None]
    if refused:
        yield f"next: {' and '.join(map(printable, refused))} will not be offered as certified; to search for a smaller"
        yield "  change that passes: reg export ... --certify --eval-suite FILE --confirm-suite FILE"
        yield "  (docs/certification.md, Refused: what now)"
    elif any(states[item.path] == "certified" for item in judged):
        yield f"next: reg push {version.ref}"


def doubts(version: Release) -> Iterator[str]:
    """Verdicts of later evaluations that differ from the manifest."""
    return (printable(artifact_state.remark) for artifact_state in version.states if artifact_state.remark)


def doubts_of(sides: Iterable[Release]) -> Iterator[str]:
    """The same of several versions, each line with its version."""
    return (f"{side.ref}: {line}" for side in sides for line in doubts(side))


def verdict(item: Artifact, state: str) -> Iterator[str]:
    """The manifest's verdict with its reasons; said as such if the artifact is refused in spite of it."""
    claim = item.certification
    if claim.reasons != UNJUDGED and (claim.rule or claim.reasons):
        by = f" by {printable(claim.rule)}" if claim.rule else ""
        whose = "" if state == claim.state else "its manifest says "
        yield f"{whose}{claim.state}{by}: {item.path}"
        yield from (f"  {printable(reason)}" for reason in claim.reasons)


def _larger_than_half(item: Artifact, manifest: Manifest) -> Iterator[str]:
    """A note about a quantized file that is larger than the float16 one of the same version."""
    half = next((other for other in manifest.artifacts if other.precision == "float16"), None)
    if half is not None and item.precision.startswith(("int8", "uint8")) and item.own_size > half.own_size:
        yield (
            f"note: {item.path} ({size(item.own_size)}) is larger than {half.path} ({size(half.own_size)}): its embeddings "
            "are in full precision; --int8-embeddings or --certify make it smaller"
        )


def _warnings(item: Artifact) -> Iterator[str]:
    """The warnings of an artifact, but those about one operator outside the mobile-safe set each."""
    outside = item.metadata.unsupported_ops
    yield from (text for text in item.metadata.warnings if text.partition(" ")[0] not in outside)


def _skipped(manifest: Manifest) -> list[Step]:
    return [step for step in manifest.recipe.steps if step.skipped] if manifest.recipe else []


def checks(manifest: Manifest) -> Iterator[str]:
    """Every measured claim with its artifact. Heads of a family are counted, and only doubtful ones are listed."""
    heads = manifest.heads
    rows = [
        (item.path, check.label, number(check.value), number(check.limit), check.samples or "", check.verdict)
        for item in manifest.artifacts
        for check in item.checks
        if item.path not in heads or check.verdict in ("fail", "unknown")
    ]
    yield from table(("ARTIFACT", "CHECK", "VALUE", "LIMIT", "SAMPLES", "VERDICT"), rows)
    quiet = Counter(
        check.verdict for item in manifest.artifacts if item.path in heads for check in item.checks
    )
    if quiet:
        yield f"heads: {', '.join(f'{count} checks {verdict}' for verdict, count in sorted(quiet.items()))}"


def files(manifest: Manifest) -> Iterator[str]:
    """Sidecars, then companions."""
    entries = [entry for item in manifest.artifacts for entry in item.files] + list(manifest.files)
    yield from table(
        ("FILE", "ROLE", "SIZE"), [(entry.path, entry.role, size(entry.size)) for entry in entries]
    )
