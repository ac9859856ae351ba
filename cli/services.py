"""Exports, proofs and deltas: functions that use both `converters` and `registry`. They print nothing."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onnxreg.cli import apart
from onnxreg.cli.output import needs
from onnxreg.registry import system
from onnxreg.registry.log.commit import read_condemned
from onnxreg.registry.log.contents import Release, Selection, held_files
from onnxreg.registry.log.decisions import delta_bases, publish_deltas
from onnxreg.registry.log.log import Log, load, mirror_error, read_deltas
from onnxreg.registry.store import streams
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryReader, RegistryStore
from onnxreg.schema.core.canonical import Descriptor, Digest
from onnxreg.schema.core.errors import ConflictError, NotFoundError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.core.units import SILENT, Progress, parse_size
from onnxreg.schema.delta.delta_format import Delta
from onnxreg.schema.gates.statements import FaithfulnessReport, proof_pairs, timed_pairs
from onnxreg.schema.manifest.manifest import FileEntry

if TYPE_CHECKING:
    from onnxreg.converters.delta.make import ModelFile
    from onnxreg.converters.engine.cache import StepCache
    from onnxreg.converters.engine.plan import ExportPlan
    from onnxreg.converters.evaluation.latency import LatencyTable
    from onnxreg.converters.families.export_family import FamilyPlan
    from onnxreg.registry.registry import Registry

MIN_DELTA_BYTES = 64 * 1024  # smaller files are always fetched whole


def publish(
    registry: "Registry",
    plan: "ExportPlan | FamilyPlan",
    version: Version | None,
    progress: Progress,
    cached: bool = True,
    is_preview: bool = False,
    minutes: float = 0,
) -> "tuple[Release, list[LatencyTable]]":
    """Run a plan, publish its draft, and attest the measured latencies. Return the version and the latencies.

    If an equal plan already made a version, return this version and run nothing. The plan of a family always runs,
    because latency is measured. A plan with a skipped step runs too, because the step's tool may be installed now.

    If `cached` is false, every step runs, and no result is cached. If `is_preview` is set, nothing is published, and
    the version that would be published is returned. `minutes` limits the time of each step. The limit holds only in the
    program `reg`, which runs the steps in a child process (see `apart.run`).
    """
    from onnxreg.converters.engine.cache import EXPORTS
    from onnxreg.converters.engine.plan import ExportPlan
    from onnxreg.converters.request import run
    from onnxreg.registry.trust.signatures import attest_benchmark, read_benchmarks

    if version is not None and isinstance(plan, ExportPlan):
        _check_source(registry, plan, version)
    cache = step_cache() if cached else None
    key = plan.key() if cache is not None and not is_preview and isinstance(plan, ExportPlan) else None
    if cache is not None and key is not None and (earlier := cache.find_value(EXPORTS, key)):
        again = registry.publisher(version).add_again(Digest.parse(earlier))
        if again is not None:
            return again, []
    with registry.workspace() as workspace:
        draft, tables = apart.run(partial(run, plan, workspace, cache), progress, minutes)
        if is_preview:
            return registry.publisher(version).preview(draft), tables
        release = registry.add(draft, version)
    logged = 0 if release.new else len(read_benchmarks(release))
    for table in tables[logged:]:  # an earlier run may have ended in between
        report = table.document(release.manifest).encode()
        attest_benchmark(registry.decisions(release.name), release, report, "benchmark")
    if cache is not None:
        cache.trim()
        if key is not None and not any(step.get("skipped") for step in draft.fields["recipe"]["steps"]):
            cache.remember(EXPORTS, key, str(release.digest))
    return release, tables


def _check_source(registry: "Registry", plan: "ExportPlan", version: Version) -> None:
    try:
        source = registry.get(Ref(plan.name, str(version))).manifest.source
    except NotFoundError:
        return
    if source is not None and source != plan.source.record(plan.name):
        hint = "a version never changes: publish under another version, or leave --version away"
        raise ConflictError(f"{plan.name}:{version} is already published, from another source", hint)


def step_cache() -> "StepCache":
    """Open the user's cache of export steps. It is outside of the registry, so that no other user can write into it."""
    from onnxreg.converters.engine.cache import MAX_CACHE_BYTES, StepCache

    limit = system.variable("REG_CACHE_SIZE")
    return StepCache(system.cache_directory() / "steps", parse_size(limit) if limit else MAX_CACHE_BYTES)


class ArtifactProof(NamedTuple):
    """A proof about the artifact at `path`. `parent` is the artifact or file with which it was compared."""

    path: str
    parent: str
    report: FaithfulnessReport


def prove_version(
    reader: RegistryReader,
    version: Release,
    paths: Collection[str] = (),
    parent: Path | None = None,
    progress: Progress = SILENT,
) -> Iterator[ArtifactProof]:
    """Yield a proof for each artifact at `paths`. By default, these are all artifacts with a parent in the version.

    With `parent`, the artifacts are compared with this file. Raise NotFoundError if this file or an artifact at `paths`
    does not exist. Raise InputError if an artifact cannot be proven.
    """
    from onnxreg.registry.transfer.export_files import fetched

    if parent is not None and not parent.is_file():
        raise NotFoundError(f"there is no file {parent}", "check the path")
    manifest, label = version.manifest, str(version.ref)
    Selection(paths=tuple(paths)).of(manifest, label)
    pairs = proof_pairs(manifest, label, paths, parent is not None)
    with needs("onnx", "reg prove"):
        from onnxreg.converters.prove.prove import prove
        from onnxreg.converters.source.source_files import digest_file

        artifacts = [artifact for pair in pairs for artifact in pair if artifact is not None]
        origin = None
        if parent is not None:
            name = f"./{parent}" if parent.name == str(parent) else str(parent)  # a file's name
            origin = name, parent, digest_file(parent)
        with fetched(reader, version, artifacts, progress) as directory:
            for child, one in pairs:
                if one is not None:
                    origin = one.path, directory / one.path, one.digest
                assert origin is not None, "pairs without a parent need one from outside"
                name, source, digest = origin
                report = prove(source, directory / child.path, (digest, child.digest))
                yield ArtifactProof(child.path, name, report)


def measure_version(
    reader: RegistryReader, version: Release, paths: Collection[str] = (), progress: Progress = SILENT
) -> bytes:
    """Time the artifacts at `paths` (default: all) and their parents in full precision. Return the benchmark document.

    Raise NotFoundError for an unknown path. Raise InputError as `timed_pairs` does.
    """
    from onnxreg.registry.transfer.export_files import fetched

    manifest, label = version.manifest, str(version.ref)
    Selection(paths=tuple(paths)).of(manifest, label)
    pairs = timed_pairs(manifest, label, paths)
    with needs("onnx", "reg measure"):
        from onnxreg.converters.evaluation.latency import compare_files

        artifacts = [artifact for pair in pairs for artifact in pair]
        with fetched(reader, version, artifacts, progress) as directory:
            files = {artifact.path: directory / artifact.path for artifact in artifacts}
            named = [(item.path, parent.path) for item, parent in pairs]
            table = apart.run(lambda _: compare_files(files, named, manifest.max_sequence_length), SILENT)
            return table.document(manifest).encode()


class DeltaReport(NamedTuple):
    """A version's deltas. `new` is the number made now. `unlike` lists files that are too different for a delta."""

    ref: Ref
    deltas: list[Delta]
    new: int
    files: Collection[FileEntry]  # of the version
    unlike: list[tuple[str, Version]]  # (path, old version)


def make_deltas(
    registry: "Registry", store: RegistryStore, ref: Ref, since: Collection[Version], progress: Progress
) -> DeltaReport:
    """Make deltas from older versions to a version in `store`. Only files that `registry` lacks are fetched.

    `since` are the older versions. By default, these are the previous release and the versions of channels.

    Raise NotFoundError if a version does not exist, ConflictError if the store is a mirror, and HostError if numpy is
    not installed.
    """
    with needs("onnx", "making deltas"):
        from onnxreg.converters.delta.make import make_delta
    if store.is_mirror:
        raise mirror_error(store.registry_id)
    located = registry.find(ref, None if store is registry.store else store)
    ledger, version = load(store, located.name), located.version
    files = _files(ledger, version)
    offered = {(delta.new, delta.old) for delta in read_deltas(ledger.fetch, ledger.versions[version].deltas)}
    fresh, unlike = list[Delta](), list[tuple[str, Version]]()
    with registry.scratch() as scratch, store.push() as push:
        push.avoid(read_condemned(store))

        def on_this_machine(file: FileEntry) -> Path:
            for holder in (store, registry.store):
                if isinstance(holder, DirectoryRegistry) and holder.has([file.digest]):
                    return holder.blob_path(file.digest)
            path = scratch / file.digest.hex
            if not path.exists():
                progress.step(f"fetching {file.path}")
                with store.open_blob(file.digest) as stream, path.open("wb") as sink:
                    streams.check(streams.pump(stream, sink)[0], file.digest, file.path)
            return path

        for old_version in delta_bases(ledger, version, since):
            old_files = _files(ledger, old_version)
            pairs = [
                (old_files[path], new)
                for path, new in files.items()
                if new.size >= MIN_DELTA_BYTES and path in old_files and old_files[path].digest != new.digest
                if (new.digest, (old_files[path].digest,)) not in offered
            ]
            if not pairs:
                continue
            before, after = (_model_files(side, on_this_machine) for side in (old_files, files))
            for old, new in pairs:
                progress.step(f"delta of {new.path} from {old_version}")
                target = scratch / "delta"
                with target.open("wb") as sink:
                    size = make_delta(before[old.path], after[new.path], sink)
                if size is None:
                    unlike.append((new.path, old_version))
                else:
                    digest, _ = push.put_file(target)
                    fresh.append(Delta(new.digest, (old.digest,), digest, size, old_version))
        deltas = publish_deltas(store, push, located.name, version, fresh, registry.actor)
    return DeltaReport(Ref(located.name, str(version)), deltas, len(fresh), files.values(), unlike)


def _files(ledger: Log, version: Version) -> dict[str, FileEntry]:
    return {file.path: file for file in held_files(ledger.manifest(version), ledger.versions[version].held)}


def _model_files(files: Mapping[str, FileEntry], find: Callable[[FileEntry], Path]) -> "dict[str, ModelFile]":
    """Return the files with the positions of their tensors. A tensor in external data belongs to that data file."""
    from onnxreg.converters.delta.make import ModelFile, read_extents

    paths = {file.path: find(file) for file in files.values()}
    extents = read_extents(paths)
    return {
        path: ModelFile(paths[path], Descriptor(file.digest, file.size), extents[path])
        for path, file in files.items()
    }
