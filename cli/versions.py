"""A version as people read it: the screen of `reg show`, and the reports of `export`, `add` and `import`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from onnxreg.cli.output import counted, fields, filled, fold_line, number, printable, size, standing, table
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import listing
from onnxreg.schema.log.state import RECALL, recalls, suite_checks
from onnxreg.schema.manifest.vocabulary import UNJUDGED

if TYPE_CHECKING:
    from onnxreg.cli.options import Session
    from onnxreg.converters.evaluation.latency import LatencyTable
    from onnxreg.registry.log.contents import Release
    from onnxreg.schema.gates.statements import BenchmarkDocument, RecordedProof
    from onnxreg.schema.log.state import ArtifactState
    from onnxreg.schema.manifest.manifest import Artifact, Check, Manifest, Source

MAX_FIGURES, MAX_LABELS, MAX_NAMES = 8, 3, 8  # on the screen; recalls of an artifact; on a line


def proofs(version: Release) -> Mapping[str, RecordedProof]:
    """Return the recorded proofs of a version, by the paths of the artifacts."""
    if not any(artifact.parent for artifact in version.manifest.artifacts):
        return {}
    from onnxreg.registry.trust.known_heads import load_trust
    from onnxreg.registry.trust.signatures import proofs_by_path

    return proofs_by_path(version, load_trust())


def blocks(*parts: Iterable[str]) -> Iterator[str]:
    """Join blocks of lines, with an empty line between each block and the next. Empty blocks are left out."""
    for index, lines in enumerate([lines for part in parts if (lines := list(part))]):
        yield from (["", *lines] if index else lines)


def screen(
    version: Release, remote: str | None, is_full: bool
) -> tuple[Sequence[Iterable[str]], Sequence[Iterable[str]]]:
    """Return two lists of blocks of lines: what `reg show` prints, and what `--full` adds.

    `remote` is the remote from which the version was read. The suggested commands name this remote.
    """
    manifest = version.manifest
    partial = None if version.held is None else f"partial: reg pull {version.ref} fetches the rest"
    first = (
        [str(version.ref), *_facts(manifest), f"manifest {version.digest}", *_keyed({"held": partial})],
        _artifacts(version),
        _reasons(version),
        _figures(manifest, is_full),
        _needs(manifest, is_full),
        _ways(version, remote, is_full),
    )
    recipe, making = manifest.recipe, dict[str, str | None]()
    if recipe:
        tools = ", ".join(f"{tool} {version}" for tool, version in sorted(recipe.tools.items()))
        making = {"recipe": f"{recipe.profile} v{recipe.profile_version}", "tools": tools}
    entries = [*(entry for item in manifest.artifacts for entry in item.files), *manifest.files]
    files = table(("FILE", "ROLE", "SIZE"), [(entry.path, entry.role, size(entry.size)) for entry in entries])
    details = (_keyed(making), _remarks(version), _checks(manifest), files)
    return first, details if is_full else ()


def report_published(
    session: Session,
    release: Release,
    out: Path | None = None,
    measured: Sequence[Iterable[str]] = (),
    last: Iterable[str] = (),
    remarks: Iterable[str] = (),
    is_preview: bool = False,
    **more: Any,
) -> None:
    """Show the result of `export`, `add` or `import`. `more` has further fields of the JSON.

    `measured`, `last` and `remarks` are printed for people, in this order. If `is_preview` is set, the output also says
    that nothing was published.
    """
    facts = [_artifacts(release), doubts(release), _remarks(release), *measured]
    existing = printable("" if release.new else _existing(release))
    if is_preview:
        plan = existing or f"{release.ref} would be new"
        outcome = blocks([f"{plan}; nothing was published"], *facts)
    elif release.new:
        head = (f"published {release.ref}", f"manifest {release.digest}")
        outcome = blocks(head, *facts, _translation(release), _next_steps(release))
    else:
        old = (f"nothing new: {existing}", f"manifest {release.digest}", *doubts(release))
        outcome = blocks(old, *measured)
    yank = release.yank
    document = fields(release, "ref name version new digest newer") | {
        "manifest": canonical.decode(release.data, "manifest"),
        "states": {path: item.state for path, item in release.states.items()},
        "yanked": yank and fields(yank, "version reason"),
        "output": out,
        **more,
    }
    session.show(document, blocks(outcome, [f"written to {out}"] if out else [], last), remarks)
    if release.new and yank is not None and not (session.as_json or is_preview):
        session.warn(f"warning: {yank.words}; `reg yank {release.ref} --undo` takes that back")


def _existing(release: Release) -> str:
    if release.yank or release.newer is None:
        return f"this is {release.ref}"
    again = f"--version {release.newer.next_patch()} publishes them again"
    return f"these are the bytes of {release.ref}, and {release.newer} is the newest; {again}"


def doubts(version: Release) -> Iterator[str]:
    """Yield a sentence if the version is yanked or gone, and for each artifact that is judged differently now."""
    if version.yank:
        yield printable(version.yank.words)
    if version.gone:
        yield f"{version.gone}: the files of {version.ref} are gone"
    yield from (printable(state.remark) for state in version.states.values() if state.remark)


def benchmark(document: BenchmarkDocument) -> Iterator[str]:
    """Yield lines about a benchmark: its machine, and a table of the figures."""
    machine = f"{document.cpu} ({document.isa}), {counted(document.threads, 'thread')}"
    yield printable(f"{machine}, {document.runtime}, {document.runs} runs")
    timed = [(item.path, item.checks) for item in document.artifacts]
    timed += [(f"candidate {item.name}", item.checks) for item in document.candidates]
    rows = [
        (label, check.name, check.metric, None if check.value is None else f"{check.value:g}")
        for label, checks in timed
        for check in checks
    ]
    yield from table(("ARTIFACT", "CHECK", "METRIC", "VALUE"), rows)


def _keyed(rows: Mapping[str, str | None]) -> Iterator[str]:
    for key, value in rows.items():
        if value:
            yield filled(printable(value), 80, " " * 9, f"{key:<9}")


def _facts(manifest: Manifest) -> Iterator[str]:
    labels = manifest.labels or ()
    return _keyed(
        {
            "about": manifest.description,
            "task": manifest.task,
            "family": manifest.family,
            "members": _members(manifest),
            "license": manifest.license,
            "source": _source(manifest.source, manifest.name) if manifest.source else None,
            "labels": f"{len(labels)}: {listing(labels, MAX_NAMES, None)}" if labels else None,
        }
    )


def _members(manifest: Manifest) -> str | None:
    if manifest.model_family is None:
        return None
    if stages := manifest.model_family.stages:
        return ", ".join(member.name for member in stages)
    roles = Counter(member.role for member in manifest.model_family.members)
    return ", ".join(f"{count} {role}" for role, count in roles.items())


def _source(source: Source, name: str) -> str:
    if source.public_id(name) is None:
        return f"local files, digest {source.digest.short}..." if source.digest else "local files"
    return f"{source.id}@{source.revision}" if source.revision else source.id


def _artifacts(version: Release) -> Iterator[str]:
    """Yield the table of artifacts. Similar heads of a family share one row at the end."""
    states, heads, stages = version.states, version.manifest.heads, version.manifest.stages
    groups: dict[tuple[str, ...], list[Artifact]] = {}
    for item in sorted(version.manifest.artifacts, key=lambda item: item.path in heads):
        alike = (item.format, item.precision, states[item.path].state)
        groups.setdefault(alike if item.path in heads else (item.path,), []).append(item)
    rows = []
    for items in groups.values():
        first, present = items[0], [item for item in items if item.path in (version.held or ())]
        name = f"{len(items)} heads" if first.path in heads else first.path
        share = f"{len(present)} of {len(items)}" if len(items) > 1 else "yes" if present else "no"
        certification = standing(first, states[first.path].state)
        if certification == "certified" and any(item.reaches_limit for item in items):
            certification += ", interval above the limit"
        total = size(sum(item.own_size for item in items))
        cells = (stages.get(name), name, first.format, first.precision, total, certification)
        rows.append((*cells, states[first.path].latency, None if version.held is None else share))
    header = ("MEMBER", "ARTIFACT", "FORMAT", "PRECISION", "SIZE", "CERTIFICATION", "LATENCY", "HELD")
    return table(header, rows)


def _reasons(version: Release) -> Iterator[str]:
    """Yield the reasons why artifacts are not certified. Heads of a family are left out."""
    yield from doubts(version)
    heads = version.manifest.heads
    for item in version.manifest.artifacts:
        state = version.states[item.path]
        if item.path not in heads and state.state == state.stated != "certified":
            yield from (fold_line(line, "    ") for line in _verdict(item, state))


def _verdict(item: Artifact, state: ArtifactState) -> Iterator[str]:
    claim = item.certification
    if claim.reasons != UNJUDGED and (claim.rule or claim.reasons):
        by = f" by {printable(claim.rule)}" if claim.rule else ""
        whose = "" if state.state == claim.state else "its manifest says "
        yield f"{whose}{claim.state}{by}: {item.path}"
        yield from (f"  {printable(reason)}" for reason in claim.reasons)


def _figures(manifest: Manifest, is_full: bool) -> Iterator[str]:
    rows = [(item.path, check) for item in manifest.artifacts for check in _of_suite(item)]
    shown = sorted(rows, key=lambda row: row[1].verdict != "fail")[:MAX_FIGURES]
    yield from table(
        ("MEASURED", "FIGURE", "VALUE", "LIMIT", "SAMPLES", "VERDICT"),
        [_check_row(path, check, check.name.removeprefix(RECALL)) for path, check in shown],
    )
    hidden = sum(len(item.checks) for item in manifest.artifacts) - len(shown)
    if hidden and not is_full:
        yield f"{'and ' if rows else ''}{counted(hidden, 'check')}{' more' if rows else ''} (--full)"
    yield from dict.fromkeys(f"suite {item.suite}" for item in manifest.artifacts if item.suite)


def _of_suite(artifact: Artifact) -> list[Check]:
    checks = [check for _, check in recalls(artifact)]
    lowest = sorted(checks, key=lambda check: (check.verdict != "fail", check.value))
    return [*suite_checks(artifact), *lowest[:MAX_LABELS]]


def _check_row(path: str, check: Check, name: str) -> tuple[object, ...]:
    return path, name, number(check.value), number(check.limit), check.samples or None, check.verdict


def _needs(manifest: Manifest, is_full: bool) -> Iterator[str]:
    """Yield lines about what the graphs need: inputs, outputs, opset and operators. Graphs with equal inputs and
    outputs form a group. If there are several groups and `is_full` is not set, yield a table of the groups.
    """
    contracts: dict[tuple[str, str], list[Artifact]] = {}
    for artifact in manifest.entry_artifacts:
        sides = (artifact.metadata.inputs, artifact.metadata.outputs)
        specs = ([f"{spec.name} {spec.dtype}{spec.shape_text}" for spec in side] for side in sides)
        inputs, outputs = map(", ".join, specs)
        contracts.setdefault((inputs, outputs), []).append(artifact)
    if len(contracts) > 1 and not is_full:
        graphs = [artifacts[0] for artifacts in contracts.values()]
        yield from table(("GRAPH", "INPUTS", "OUTPUTS", "OPSET", "OPERATORS"), map(_contract, graphs))
        return
    for (inputs, outputs), artifacts in contracts.items():
        first = artifacts[0]
        yield from _keyed(
            {
                "of": listing([item.path for item in artifacts], MAX_NAMES, None)
                if len(contracts) > 1
                else None,
                "inputs": inputs,
                "outputs": outputs,
                "opset": _opsets(first),
                "kv cache": _kv_cache(first),
                "needs": _operators(_operator_names(first)),
            }
        )
        for other in artifacts[1:MAX_NAMES]:
            new = [name for name in _operator_names(other) if name not in _operator_names(first)]
            opsets = None if _opsets(other) == _opsets(first) else f"opset {_opsets(other) or 'not recorded'}"
            if differences := "; ".join(filter(None, (opsets, _operators(new)))):
                yield from _keyed({"also": f"{other.path}: {differences}"})


def _contract(artifact: Artifact) -> tuple[object, ...]:
    sides = (
        f"{side[0].name}{f' and {len(side) - 1} more' if side[1:] else ''}" if side else None
        for side in (artifact.metadata.inputs, artifact.metadata.outputs)
    )
    return artifact.path, *sides, _opsets(artifact), len(_operator_names(artifact)) or None


def _opsets(artifact: Artifact) -> str:
    used = {operator.domain for operator in artifact.operators} | {"ai.onnx"}
    opsets = {domain: number for domain, number in artifact.opset_imports.items() if domain in used}
    if not opsets and artifact.metadata.opset is not None:
        opsets = {"ai.onnx": artifact.metadata.opset}
    return ", ".join(f"{domain} {number}" for domain, number in sorted(opsets.items()))


def _kv_cache(artifact: Artifact) -> str | None:
    cache = artifact.kv_cache
    if cache is None:
        return None
    longest = size(cache.bytes_per_token * cache.max_tokens)
    return f"{size(cache.bytes_per_token)} a token, at most {cache.max_tokens} tokens ({longest})"


def _operator_names(artifact: Artifact) -> list[str]:
    """Return the names of an artifact's operators. Operators outside of ai.onnx come first, as `domain:name`."""
    names = {
        operator.name if operator.domain == "ai.onnx" else f"{operator.domain}:{operator.name}"
        for operator in artifact.operators
    }
    return sorted(names or artifact.metadata.operators, key=lambda name: (":" not in name, name))


def _operators(names: Sequence[str]) -> str | None:
    return f"{counted(len(names), 'operator')}: {listing(names, MAX_NAMES, None)}" if names else None


def _ways(version: Release, remote: str | None, is_full: bool) -> Iterator[str]:
    # These lines are not folded: people copy them.
    argument = quote(remote) if remote else ""
    option = f" --remote {argument}" if argument else ""
    member = " --member MEMBER" if version.manifest.stages else ""
    if not version.gone:
        yield f"get it   reg resolve {version.ref}{option}{member} --device DEVICE"
        yield f"         reg pull {version.ref} {argument or 'REMOTE'} --output DIRECTORY"
    if not is_full:
        yield f"more     reg show {version.ref}{option} --full"


def _remarks(version: Release) -> Iterator[str]:
    from onnxreg.schema.query.runtimes import NEWEST

    manifest = version.manifest
    for item in manifest.artifacts:
        yield from _verdict(item, version.states[item.path])
        if outside := item.metadata.unsupported_ops:
            yield f"note: {item.path}: outside the mobile-safe operators: {', '.join(map(printable, outside))}"
        warnings = (text for text in item.metadata.warnings if text.partition(" ")[0] not in outside)
        yield from (f"warning: {item.path}: {printable(text)}" for text in warnings)
        if (opset := item.metadata.opset or 0) > NEWEST.opset:
            yield f"warning: {item.path}: no release of ONNX Runtime known here loads opset {opset}, only up to {NEWEST.opset}"
        if not item.reproducible:
            yield f"note: {item.path}: its bytes may differ when it is converted again"
    for step in manifest.recipe.steps if manifest.recipe else ():
        if step.skipped:
            yield f"skipped: {printable(step.name)}: {printable(step.skipped)}"


def _checks(manifest: Manifest) -> Iterator[str]:
    heads = manifest.heads
    pairs = [(item.path, check) for item in manifest.artifacts for check in item.checks]
    rows = [
        _check_row(path, check, check.label)
        for path, check in pairs
        if path not in heads or check.verdict in ("fail", "unknown")
    ]
    yield from table(("ARTIFACT", "CHECK", "VALUE", "LIMIT", "SAMPLES", "VERDICT"), rows)
    if quiet := Counter(check.verdict for path, check in pairs if path in heads):
        yield f"heads: {', '.join(f'{count} checks {verdict}' for verdict, count in sorted(quiet.items()))}"


def _recorded(version: Release, key: str) -> Mapping[str, Any]:
    recipe = version.manifest.recipe
    value = recipe.parameters.get(key) if recipe else None
    return value if isinstance(value, Mapping) else {}


def _translation(version: Release) -> Iterator[str]:
    fields = _recorded(version, "recipe").get("translation", ())
    rows = [(field["field"], json.dumps(field["value"]), field["became"]) for field in fields]
    return table(("FIELD", "VALUE", "BECAME"), rows)


def searched(version: Release, tables: Sequence[LatencyTable]) -> Iterator[str]:
    """Yield lines about the search that made the version: the candidates with their figures, and the winner."""
    record = _recorded(version, "search")
    if not record:
        return
    items = (pair for one in tables for pair in one.candidates.items())
    timed = {name: [item.ratio for item in measured if item.ratio] for name, measured in items}
    trials, winner = record["candidates"], printable(record["winner"])
    rows = [
        (
            trial["candidate"],
            size(trial["bytes"]) if "bytes" in trial else None,
            [f"{one.value:.2f} x{', too noisy' * one.is_noisy}" for one in timed.get(trial["candidate"], ())],
            [_loss(item["metric"], item["loss"], item.get("interval")) for item in trial.get("metrics", ())],
            "timed, not judged" if trial["state"] == "untried" else trial["state"],
        )
        for trial in trials
        if trial["state"] != "untried" or "bytes" in trial
    ]
    tried = f"tried {record['tried']} of {counted(len(trials), 'candidate')} on the suite to choose on"
    yield f"{tried}; the winner is {winner}"
    yield from table(("CANDIDATE", "SIZE", "LATENCY", "LOSS", "VERDICT"), rows)
    passed = {trial["candidate"]: trial["bytes"] for trial in trials if trial["state"] == "certified"}
    costs = {name: (bytes_, max(timed[name]).value) for name, bytes_ in passed.items() if name in timed}
    front = [
        name
        for name, cost in costs.items()
        if not any(other != cost and other[0] <= cost[0] and other[1] <= cost[1] for other in costs.values())
    ]
    if front:
        yield f"Pareto front of size and latency, of what passes: {', '.join(map(printable, front))}"
    for item in version.manifest.artifacts:
        if item.path == record.get("output"):
            losses = [check for check in item.checks if check.interval and check.limit is not None]
            figures = ", ".join(_loss(check.label, check.value, check.interval) for check in losses)
            verdict = f"{item.path} {figures}: {item.certification.state}"
            yield printable(f"on the suite to confirm on: {verdict}")


def _loss(metric: str, loss: float | None, interval: Sequence[float] | None) -> str:
    return f"{metric} {number(loss)}" + (f" ({' to '.join(map(number, interval))})" if interval else "")


def _next_steps(version: Release) -> Iterator[str]:
    """Yield the next command. It is a push if all files are certified, a search if some failed, else an evaluation."""
    rules = {item.path: item.certification.rule for item in version.manifest.artifacts}
    judged = {
        path: item.state for path, item in version.states.items() if rules[path] or item.state == "refused"
    }
    if failed := [path for path, state in judged.items() if state != "certified"]:
        yield f"next: {' and '.join(map(printable, failed))} will not be offered as certified; to search for one that is:"
        yield "  reg export ... --certify --eval-suite FILE --confirm-suite FILE (docs/certification.md)"
    elif judged:
        yield f"next: reg push {version.ref}"
    elif version.manifest.source and (
        small := [item.path for item in version.manifest.artifacts if item.precision != "float32"]
    ):
        yield f"next: no suite judged {', '.join(map(printable, small))}; to judge with your own examples:"
        yield "  reg export ... --eval-suite FILE (docs/certification.md)"
