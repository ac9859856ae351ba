"""Exports between converters and registry: run a plan, or recognise an earlier run, publish it, and push it.

A decoder is built only if the memory for it is free on this machine.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import wants_deltas
from onnxreg.cli.services.export_request import flag
from onnxreg.registry.support import environment
from onnxreg.schema.core.errors import HostError, InputError, NotFoundError, RegError
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.core.units import parse_size

if TYPE_CHECKING:
    from onnxreg.cli.services.export_request import ExportRequest
    from onnxreg.converters.engine.cache import StepCache
    from onnxreg.converters.engine.latency import LatencyTable
    from onnxreg.converters.engine.plan import ExportPlan
    from onnxreg.converters.families.family_plan import FamilyPlan
    from onnxreg.registry import Registry
    from onnxreg.registry.read.versions import Release
    from onnxreg.registry.transfer.exchange import TransferResult
    from onnxreg.schema.manifest.draft import Draft

BATCH_WIDE_OPTIONS = ("trust_remote_code", "allow_code")
"""The settings of every job of a batch."""

QUANTIZED = "onnx-int8"
"""The format of files that have scales to take."""


def publish(
    registry: "Registry",
    plan: "ExportPlan | FamilyPlan",
    version: Version | None,
    progress: Progress,
    request: "ExportRequest | None" = None,
) -> "tuple[Release, LatencyTable | None]":
    """Run a plan and publish its draft; return the version, and the latency of a family.

    A plan is not run again if all its files are in the registry. A family is always run, because its limit of latency
    holds for this moment.

    Args:
        request: the request of the plan; nothing is cached without.
    """
    from onnxreg.converters.families.family_plan import FamilyPlan

    with registry.workspace() as workspace:
        if isinstance(plan, FamilyPlan):
            return _publish_family(registry, plan, version, progress, workspace)
        if request is not None:
            return _publish_cached(registry, plan, version, progress, request, workspace), None
        check_memory(plan)
        return add(registry, plan, _run(plan, workspace, None, progress), version, progress), None


def preview(
    registry: "Registry",
    plan: "ExportPlan | FamilyPlan",
    version: Version | None,
    progress: Progress,
    with_cache: bool,
) -> "Release":
    """Run a plan and return the version that it would publish. Nothing but the results of its steps is kept."""
    from onnxreg.converters.families.family_plan import FamilyPlan

    with registry.workspace() as workspace:
        if isinstance(plan, FamilyPlan):
            from onnxreg.converters.families.export_family import export_family

            draft, _ = export_family(plan, workspace, progress)
        else:
            check_memory(plan)
            cache = step_cache() if with_cache else None
            draft = _run(plan, workspace, cache, progress)
        return registry.publisher(version).preview(draft)


def add(
    registry: "Registry",
    plan: "ExportPlan",
    draft: "Draft",
    version: Version | None,
    progress: Progress,
) -> "Release":
    """Publish a draft. A benchmark of its recipe is measured first and recorded afterwards."""
    if plan.recipe.benchmark is None:
        return registry.add(draft, version)
    from onnxreg.converters.engine.latency import measure

    progress.step("timing what was made")
    latency = measure(draft, plan.recipe.benchmark)
    published = registry.add(draft, version)
    _record_latency(registry, published, latency)
    return published


def _record_latency(registry: "Registry", published: "Release", latency: "LatencyTable") -> None:
    from onnxreg.registry.gates.statements import attest_benchmark

    decisions, report = registry.decisions(published.name), latency.document(published.manifest).encode()
    attest_benchmark(decisions, published, report, "benchmark")


def show_earlier_export(
    session: Session,
    request: "ExportRequest",
    version: Version | None,
    push: str | None = None,
) -> bool:
    """Show what the same request published, if its source and tools are unchanged; else return False.

    If a remote is named, `push` sends the version there.
    """
    from onnxreg.cli.reports.publish_report import report_published
    from onnxreg.converters.engine.cache import find_export_of_request

    earlier = find_export_of_request(step_cache(), request.values)
    if earlier is None:
        return False
    from onnxreg.registry.publish.add import find_existing

    existing = find_existing(session.reader(), earlier.name, earlier.manifest, version)
    if existing is None:
        return False
    report_and_push(session, existing.ref, push, partial(report_published, session, existing))
    return True


def report_and_push(session: Session, ref: Ref, remote: str | None, report: Callable[..., None]) -> None:
    """Call `report`, and push the version if a remote is named; then make its deltas there.

    With --json the push comes first, and the report has the key `pushed`: what `reg push --json` prints, or null if the
    push failed. Raises what push and deltas raise.
    """
    if remote is None:
        report()
        return
    from onnxreg.cli.reports import transfer_report

    if not session.as_json:
        report()
    registry, pushed = session.open(), None
    try:
        result = _push(session, registry, ref, remote)
        pushed = transfer_report.to_json(result, registry.remotes.url_of(remote))
    finally:
        if session.as_json:
            report(pushed=pushed)
    if wants_deltas():
        from onnxreg.cli.services.delta_service import offer_deltas

        refs = [Ref(result.name, str(version)) for version in result.versions]
        offer_deltas(session, registry, refs, registry.remotes.open(remote))


def offer_deltas_of(session: Session, registry: "Registry", release: "Release", deltas: bool) -> None:
    """Make the deltas of a new version if the user asks for them."""
    if deltas and release.new:
        from onnxreg.cli.services.delta_service import offer_deltas

        offer_deltas(session, registry, [release.ref])


def check_one(**options: object) -> None:
    """Raise InputError unless exactly one of these options is set."""
    names = [f"--{name}" for name, value in options.items() if value is not None]
    if len(names) != 1:
        *first, last = (f"--{name}" for name in options)
        message = (
            f"{' and '.join(names)} contradict each other" if names else "nothing says what to export for"
        )
        raise InputError(message, f"see `reg export --help`: give {', '.join(first)} or {last}")


def check_alone(option: str, others: Mapping[str, object]) -> None:
    """Raise InputError if an option is set that the job file says for each job."""
    name = next(
        (key for key, value in others.items() if value is not None and key not in BATCH_WIDE_OPTIONS), None
    )
    if name is not None:
        label = "SOURCE" if name == "source" else flag(name)
        raise InputError(
            f"--{option} and {label} contradict each other", "say it in the job file, row by row"
        )


def check_needs(option: str, others: Mapping[str, object]) -> None:
    """Raise InputError if an option is set without the option that it belongs to."""
    name = next((key for key, value in others.items() if value is not None), None)
    if name is not None:
        raise InputError(f"--{name} goes with --{option}", f"name a job file: --{option} FILE")


def find_parent_file(session: Session, parent: str) -> Path:
    """The file that `--scales-from` names: a path, or the quantized artifact of a version in the registry.

    Raises NotFoundError if the version or its file is not there, InputError if it has none or several such artifacts.
    """
    if (path := Path(parent)).is_file():
        return path
    registry = session.open()
    published = registry.get(parent)
    artifacts = [item for item in published.manifest.artifacts if item.format == QUANTIZED]
    if not artifacts:
        raise InputError(
            f"{published.ref} has no scales to take: it has no file of the format {QUANTIZED}",
            "name another version: --scales-from NAME:VERSION",
        )
    if len(artifacts) > 1:
        paths = ", ".join(item.path for item in artifacts)
        raise InputError(
            f"{published.ref} has {len(artifacts)} files of the format {QUANTIZED}: {paths}",
            f"pull it and name one: reg pull {published.ref} old, then --scales-from old/{artifacts[0].path}",
        )
    (artifact,) = artifacts
    if not registry.store.has({artifact.digest}):
        raise NotFoundError(
            f"{artifact.path} of {published.ref} is not in this registry",
            f"fetch it: reg pull {published.ref}",
        )
    return registry.store.blob_path(artifact.digest)


def check_memory(plan: "ExportPlan") -> None:
    """Raise HostError if a plan builds a decoder that takes more memory than is free; unknown sizes pass."""
    from onnxreg.converters.passes.model_builder import ModelBuilder, peak_memory

    source = plan.source.location
    if not isinstance(source, Path) or all(node.kind is not ModelBuilder for node in plan.nodes.values()):
        return
    peak, free = peak_memory(source), free_memory()
    if peak is not None and free is not None and peak > free:
        raise HostError(
            f"building the decoder takes about {peak / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free",
            "close other programs, or export it on a machine with more memory",
        )


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes available without swapping, no more than the control group allows; None if that is unknown."""
    limits = [_available(root), _left_in_group(root / "sys/fs/cgroup")]
    return min((size for size in limits if size is not None), default=None)


def step_cache() -> "StepCache":
    """The user's cache of export steps, which no other writer of a shared registry can fill."""
    from onnxreg.converters.engine.cache import StepCache

    return StepCache(environment.cache_directory() / "steps")


def cache_limit() -> int:
    """Bytes: `REG_CACHE_SIZE`, such as `20GB`, else 10 GiB."""
    from onnxreg.converters.engine.cache import MAX_CACHE_BYTES

    limit = environment.read("REG_CACHE_SIZE")
    return parse_size(limit) if limit else MAX_CACHE_BYTES


def _publish_family(
    registry: "Registry",
    plan: "FamilyPlan",
    version: Version | None,
    progress: Progress,
    workspace: Path,
) -> "tuple[Release, LatencyTable]":
    """Export and publish a family; the latency of a new version is put on record."""
    from onnxreg.converters.families.export_family import export_family

    draft, latency = export_family(plan, workspace, progress)
    published = registry.add(draft, version)
    if published.new:
        _record_latency(registry, published, latency)
    return published, latency


def _publish_cached(
    registry: "Registry",
    plan: "ExportPlan",
    version: Version | None,
    progress: Progress,
    request: "ExportRequest",
    workspace: Path,
) -> "Release":
    """Publish a plan by the cache.

    A draft that lacks an optional step is not remembered: the machine may have the step's tool the next time.
    """
    from onnxreg.converters.engine.cache import find_export, remember_export, remember_request

    cache, limit = step_cache(), cache_limit()
    earlier = find_export(cache, plan)
    published = None if earlier is None else registry.publisher(version).add_again(earlier)
    if published is None:
        check_memory(plan)
        draft = _run(plan, workspace, cache, progress)
        published = add(registry, plan, draft, version, progress)
        cache.trim(limit)
        if any(step.get("skipped") for step in draft.fields["recipe"]["steps"]):
            return published
        remember_export(cache, plan, published.digest)
    remember_request(cache, request.values, request.documents, plan, published.digest, request.plan)
    return published


def _run(plan: "ExportPlan", workspace: Path, cache: "StepCache | None", progress: Progress) -> "Draft":
    """Run a plan. If its recipe has a search, first find the winner; without one nothing of searches is imported."""
    if plan.recipe.search is None:
        from onnxreg.converters.engine.run_plan import execute

        return execute(plan, workspace, cache, progress)
    from onnxreg.converters.search import run_with_search

    return run_with_search(plan, workspace, cache, progress)


def _available(root: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _left_in_group(group: Path) -> int | None:
    with suppress(OSError, ValueError):
        limit, used = ((group / f"memory.{name}").read_text("ascii") for name in ("max", "current"))
        return max(0, int(limit) - int(used))
    return None


def _push(session: Session, registry: "Registry", ref: Ref, remote: str) -> "TransferResult":
    """Push a version, and say so to people."""
    from onnxreg.cli.errors import resumable
    from onnxreg.cli.reports import transfer_report

    watch = transfer_report.Stopwatch()
    with _still_published(ref, remote), resumable(), session.progress(f"pushing {ref}") as progress:
        result = registry.push(ref, remote, progress)
    if not session.as_json:
        session.say("")
        url = registry.remotes.url_of(remote)
        transfer_report.report_transfer(session, "pushed", result, url, watch)
    return result


@contextmanager
def _still_published(ref: Ref, remote: str) -> Iterator[None]:
    """Say in an error of the body that the version is published, and how to push it again."""
    try:
        yield
    except RegError as error:
        from shlex import quote

        error.message = f"{ref} is published here, but not pushed: {error.message}"
        again = f"to try again: reg push {ref} {quote(remote)}"
        error.hint = f"{error.hint}; {again}" if error.hint else again
        raise
