"""A version on one screen: what it is, what may ship, what was measured, what it needs, how to get it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from onnxreg.cli.render import manifest_view, output
from onnxreg.cli.render.output import counted, size
from onnxreg.schema.log.summary import RECALL, suite_checks

if TYPE_CHECKING:
    from onnxreg.registry.log.lookup import Release
    from onnxreg.schema.manifest.manifest import Artifact, Manifest
    from onnxreg.schema.manifest.parts import Check, TensorSpec

MAX_FIGURES, MAX_LABELS, MAX_OPERATORS, MAX_NAMES = 8, 3, 8, 6
"""Figures of all artifacts, labels with the lowest recall of each, operators of a graph, artifacts in a line."""


def lines(version: Release, remote: str | None, is_full: bool = False) -> Iterator[str]:
    """The screen. `remote` is the remote that was read, if any; with `is_full` more follows."""
    manifest = version.manifest
    partial = [] if version.held is None else [f"held     partial: reg pull {version.ref} fetches the rest"]
    blocks: Sequence[Iterable[str]] = (
        (str(version.ref), *manifest_view.facts(manifest), f"manifest {version.digest}", *partial),
        manifest_view.artifacts(version),
        _shipping(version),
        _figures(manifest, is_full),
        _needs(manifest),
        _ways(version, remote, is_full),
    )
    for number, block in enumerate(list(map(list, blocks))):
        if block:
            yield from (["", *block] if number else block)


def _shipping(version: Release) -> Iterator[str]:
    """The artifacts that may ship as certified and those that may not, with the reasons of each verdict against one."""
    paths: dict[str, list[str]] = {}
    heads: Counter[str] = Counter()
    of_heads = version.manifest.heads
    artifacts = {item.path: item for item in version.manifest.artifacts}
    for artifact_state in version.states:
        item, state = artifacts[artifact_state.path], artifact_state.state
        if state == "unknown" and item.certification.rule is not None:
            state = "unsettled"
        if item.path in of_heads:
            heads[state] += 1
        else:
            wide = " (interval above the limit)" if state == "certified" and item.reaches_limit else ""
            paths.setdefault(state, []).append(f"{item.path}{wide}")
    for state, count in heads.items():
        paths.setdefault(state, []).insert(0, counted(count, "artifact") + " of heads")
    yield from manifest_view.keyed(
        {
            "ship": f"certified: {_named(paths.get('certified', ['no artifact']))}",
            "not": f"refused: {_named(paths['refused'])}" if "refused" in paths else None,
            "open": f"judged, but not settled: {_named(paths['unsettled'])}"
            if "unsettled" in paths
            else None,
            "unknown": f"not judged: {_named(paths['unknown'])}" if "unknown" in paths else None,
        }
    )
    yield from manifest_view.doubts(version)
    for item in version.manifest.artifacts:
        against = {"refused": "refused", "unknown": "unsettled"}.get(item.certification.state, "")
        if item.path in paths.get(against, ()):
            lines = manifest_view.verdict(item, item.certification.state)
            yield from (output.fold_line(line, "    ") for line in lines)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more}"


def _figures(manifest: Manifest, is_full: bool) -> Iterator[str]:
    """The figures of each artifact on its suite. Of recalls by label, only the lowest and the failing ones."""
    rows = [(item.path, check) for item in manifest.artifacts for check in _of_suite(item)]
    failing_first = sorted(rows, key=lambda row: row[1].verdict != "fail")
    yield from output.table(
        ("MEASURED", "FIGURE", "VALUE", "LIMIT", "SAMPLES", "VERDICT"),
        [_figure(path, check) for path, check in failing_first[:MAX_FIGURES]],
    )
    total = sum(len(item.checks) for item in manifest.artifacts)
    hidden = total - min(len(rows), MAX_FIGURES)
    if hidden and not is_full:
        yield f"{'and ' if rows else ''}{counted(hidden, 'check')}{' more' if rows else ''} (--full)"
    suites = Counter(
        str(item.certification.evidence.suite)
        for item in manifest.artifacts
        if item.certification.evidence and item.certification.evidence.suite
    )
    yield from (f"suite {suite}" for suite in suites)


def _of_suite(artifact: Artifact) -> list[Check]:
    recalls = [
        check for check in artifact.checks if check.name.startswith(RECALL) and check.value is not None
    ]
    lowest = sorted(recalls, key=lambda check: (check.verdict != "fail", check.value))
    return [*suite_checks(artifact), *lowest[:MAX_LABELS]]


def _figure(path: str, check: Check) -> tuple[object, ...]:
    value, limit = (None if number is None else f"{number:.4g}" for number in (check.value, check.limit))
    return (
        path,
        check.name.removeprefix(RECALL),
        value or "",
        limit or "",
        check.samples or "",
        check.verdict,
    )


def _needs(manifest: Manifest) -> Iterator[str]:
    """Inputs, outputs, opset and operators of the artifacts that an app loads first; what is alike is printed once."""
    contracts: dict[tuple[str, str], list[Artifact]] = {}
    for artifact in manifest.entry_artifacts:
        metadata = artifact.metadata
        sides = (", ".join(map(_tensor, side)) for side in (metadata.inputs, metadata.outputs))
        inputs, outputs = sides
        contracts.setdefault((inputs, outputs), []).append(artifact)
    for (inputs, outputs), artifacts in contracts.items():
        paths = _named([artifact.path for artifact in artifacts])
        first = artifacts[0]
        yield from manifest_view.keyed(
            {
                "of": paths if len(contracts) > 1 else None,
                "inputs": inputs,
                "outputs": outputs,
                "opset": _opsets(first),
                "kv cache": _kv_cache(first),
                "needs": _operators(_operator_names(first)),
            }
        )
        for other in artifacts[1:MAX_NAMES]:
            new = [name for name in _operator_names(other) if name not in _operator_names(first)]
            opsets = "" if _opsets(other) == _opsets(first) else f"opset {_opsets(other) or 'not recorded'}; "
            if new or opsets:
                yield from manifest_view.keyed(
                    {"also": f"{other.path}: {opsets}{_operators(new) or ''}".rstrip("; ")}
                )


def _opsets(artifact: Artifact) -> str:
    """The opsets of the domains that its operators are of."""
    used = {operator.domain for operator in artifact.operators} | {"ai.onnx"}
    opsets = {domain: number for domain, number in artifact.opset_imports.items() if domain in used}
    if not opsets and artifact.metadata.opset is not None:
        opsets = {"ai.onnx": artifact.metadata.opset}
    return ", ".join(f"{domain} {number}" for domain, number in sorted(opsets.items()))


def _kv_cache(artifact: Artifact) -> str | None:
    """The memory of a decoder's keys and values: `32 KiB a token, at most 131072 tokens (4 GiB)`."""
    cache = artifact.kv_cache
    if cache is None:
        return None
    longest = size(cache.bytes_per_token * cache.max_tokens)
    return f"{size(cache.bytes_per_token)} a token, at most {cache.max_tokens} tokens ({longest})"


def _tensor(spec: TensorSpec) -> str:
    """`input_ids int64[batch, sequence]`"""
    return f"{spec.name} {spec.dtype}{spec.shape_text}"


def _operator_names(artifact: Artifact) -> list[str]:
    """The names of its operators, those of other domains than ai.onnx first, with their domain."""
    names = {
        operator.name if operator.domain == "ai.onnx" else f"{operator.domain}:{operator.name}"
        for operator in artifact.operators
    }
    return sorted(names or artifact.metadata.operators, key=lambda name: (":" not in name, name))


def _operators(names: Sequence[str]) -> str | None:
    more = ", ..." if len(names) > MAX_OPERATORS else ""
    listed = f"{', '.join(names[:MAX_OPERATORS])}{more}"
    return f"{counted(len(names), 'operator')}: {listed}" if names else None


def _ways(version: Release, remote: str | None, is_full: bool) -> Iterator[str]:
    """Commands that choose one of its files, fetch them, or show more; never folded, so that they can be copied."""
    argument = quote(remote) if remote else ""
    option = f" --remote {argument}" if argument else ""
    yield f"get it   reg resolve {version.ref}{option} --device DEVICE"
    yield f"         reg pull {version.ref} {argument or 'REMOTE'} --output DIRECTORY"
    if not is_full:
        yield f"more     reg show {version.ref}{option} --full"
