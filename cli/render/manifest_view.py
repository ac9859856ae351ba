"""A manifest as people read it: artifacts, verdicts, checks, companions, recipe."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from onnxreg.cli.render.output import printable, size, table
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.manifest.draft import NOT_EVALUATED
from onnxreg.schema.manifest.evidence import Check
from onnxreg.schema.manifest.manifest import Artifact, Manifest, Source
from onnxreg.schema.manifest.recorded_recipe import Step

if TYPE_CHECKING:
    from onnxreg.registry.read.versions import PublishedVersion
    from onnxreg.schema.formats.benchmark import BenchmarkDocument


ON_THE_CPU = "  such operators run on the CPU; NNAPI and XNNPACK may leave them to it"


def facts(manifest: Manifest) -> Iterator[str]:
    """`key  value` lines, folded at 80 columns, of what is known of the version as a whole."""
    source, labels = manifest.source, manifest.labels or ()
    rows = {
        "task": manifest.task,
        "family": manifest.family,
        "members": _members(manifest),
        "license": manifest.license,
        "source": source and _source(source, manifest.name),
        "labels": labels and f"{len(labels)}: {', '.join(labels[:6])}{', ...' if len(labels) > 6 else ''}",
        "recipe": manifest.recipe and f"{manifest.recipe.profile} v{manifest.recipe.profile_version}",
        "tools": manifest.recipe
        and ", ".join(f"{tool} {version}" for tool, version in sorted(manifest.recipe.tools.items())),
    }
    for key, value in rows.items():
        if value:
            yield from wrap(printable(value), 80, initial_indent=f"{key:<9}", subsequent_indent=" " * 9)


def _source(source: Source, name: str) -> str:
    """A hub id, or what another registry calls it; files that lay on somebody's machine have no name of their own."""
    if source.id == name:
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


def artifacts(manifest: Manifest, held: Collection[str] | None = None) -> Iterator[str]:
    """One row for each artifact, in the manifest's order; where not all are held, it says which are.

    Heads of a family that are of one kind share a row.
    """
    heads, stages = _heads(manifest), manifest.stages
    single = [item for item in manifest.artifacts if item.path not in heads]
    rows = [_row([item], item.path, held) for item in single]
    together: dict[tuple[str, ...], list[Artifact]] = {}
    for item in manifest.artifacts:
        if item.path in heads:
            together.setdefault((item.format, item.precision, item.certification.state), []).append(item)
    rows += [_row(items, f"{len(items)} heads", held) for items in together.values()]
    heading: tuple[str, ...] = ("ARTIFACT", "FORMAT", "PRECISION", "SIZE", "CERTIFICATION", "HELD")
    if stages:
        heading, rows = ("MEMBER", *heading), [(stages.get(row[0], ""), *row) for row in rows]
    yield from table(heading, rows)


def _heads(manifest: Manifest) -> Collection[str]:
    """The paths of the heads of a family."""
    family = manifest.model_family
    return {path for member in family.of_role("head") for path in member.artifacts} if family else ()


def _row(items: Sequence[Artifact], name: str, held: Collection[str] | None) -> tuple[str, ...]:
    first, here = items[0], sum(held is None or item.path in held for item in items)
    told = f"{here} of {len(items)}" if len(items) > 1 else "yes" if here else "no"
    return (
        name,
        first.format,
        first.precision,
        size(sum(item.own_size for item in items)),
        first.certification.state,
        "" if held is None else told,
    )


def benchmark(found: "BenchmarkDocument") -> Iterator[str]:
    """Where the artifacts ran, and one row for each batch size of each."""
    threads = "1 thread" if found.threads == 1 else f"{found.threads} threads"
    yield printable(f"{found.cpu} ({found.isa}), {threads}, {found.runtime}, {found.runs} runs")
    rows = [
        (item.path, check.name, check.metric, "" if check.value is None else f"{check.value:g}")
        for item in found.artifacts
        for check in item.checks
    ]
    yield from table(("ARTIFACT", "CHECK", "METRIC", "VALUE"), rows)


def translation(manifest: Manifest) -> Iterator[str]:
    """What became of each field of another tool's document, where the recipe was one."""
    recorded = manifest.recipe.parameters.get("recipe") if manifest.recipe else None
    told = recorded.get("translation", ()) if isinstance(recorded, Mapping) else ()
    if told:
        rows = [
            (printable(each["field"]), json.dumps(each["value"]), printable(each["became"])) for each in told
        ]
        yield from table(("FIELD", "VALUE", "BECAME"), rows)


def remarks(manifest: Manifest) -> Iterator[str]:
    """What a person should know before they rely on it: verdicts with reasons, warnings, steps that were skipped."""
    for item in manifest.artifacts:
        yield from _verdict(item)
        if outside := item.metadata.unsupported_ops:
            yield f"note: {item.path}: outside the mobile-safe operators: {', '.join(map(printable, outside))}"
        yield from (f"warning: {item.path}: {printable(text)}" for text in _warnings(item))
        if not item.reproducible:
            yield f"note: {item.path}: its bytes may differ when it is converted again"
    if any(item.metadata.unsupported_ops for item in manifest.artifacts):
        yield ON_THE_CPU
    for step in _skipped(manifest):
        yield f"skipped: {printable(step.name)}: {printable(step.skipped or '')}"


def later(manifest: Manifest, attested: Mapping[Digest, str]) -> Iterator[str]:
    """What later evaluations say of artifacts and the manifest does not. A refusal wins."""
    for item in manifest.artifacts:
        stated = item.certification.state
        state = attested.get(item.digest, stated)
        if state != stated:
            yield f"{state} by a later evaluation: {item.path} (its manifest says {stated})"


def later_of(sides: "Iterable[PublishedVersion]") -> Iterator[str]:
    """The same of several versions, each line with its version."""
    return (f"{side.ref}: {line}" for side in sides for line in later(side.manifest, side.attested))


def _verdict(item: Artifact) -> Iterator[str]:
    verdict = item.certification
    if verdict.reasons != NOT_EVALUATED.reasons and (verdict.rule or verdict.reasons):
        by = f" by {printable(verdict.rule)}" if verdict.rule else ""
        yield f"{verdict.state}{by}: {item.path}"
        yield from (f"  {printable(reason)}" for reason in verdict.reasons)


def _warnings(item: Artifact) -> Iterator[str]:
    """The warnings of an artifact, but those about one operator outside the mobile-safe set each."""
    outside = item.metadata.unsupported_ops
    yield from (text for text in item.metadata.warnings if text.partition(" ")[0] not in outside)


def _skipped(manifest: Manifest) -> list[Step]:
    return [step for step in manifest.recipe.steps if step.skipped] if manifest.recipe else []


def checks(manifest: Manifest) -> Iterator[str]:
    """Every measured claim, with the artifact it is about; of the heads of a family those that are in doubt, and a count."""
    heads = _heads(manifest)
    rows = [
        (
            item.path,
            _label(check),
            _number(check.value),
            _number(check.limit),
            check.samples or "",
            check.verdict,
        )
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


def _label(check: Check) -> str:
    return check.name if check.name.startswith(check.metric) else f"{check.name}/{check.metric}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def files(manifest: Manifest) -> Iterator[str]:
    """Sidecars, then companions."""
    entries = [entry for item in manifest.artifacts for entry in item.files] + list(manifest.files)
    yield from table(
        ("FILE", "ROLE", "SIZE"), [(entry.path, entry.role, size(entry.size)) for entry in entries]
    )
