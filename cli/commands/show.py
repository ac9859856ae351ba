"""`reg show`: show what a manifest says of a version, or what benchmarks say of the speed of its artifacts."""

from collections.abc import Iterator

from onnxreg.cli import versions
from onnxreg.cli.options import REF, REMOTE, Session, flag
from onnxreg.cli.output import fold_line, printable, write_bytes
from onnxreg.registry.log.contents import Release, read_version
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.errors import IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg show acme/pii-small",
    "reg show acme/pii-small --full",
    "reg show acme/pii-small:1.2.0 --json > openmed-onnx.json",
    "reg show acme/pii-small --remote origin",
    "reg show acme/digits:1.0.0 --benchmark",
)


def command(
    session: Session,
    ref: str = REF,
    remote: str | None = REMOTE,
    benchmark: bool = flag("Show how fast the artifacts ran, if this was attested."),
    full: bool = flag("Also show the recipe, remarks, every check and every file."),
) -> None:
    """Show what a version is, what may ship, what was measured, what it needs to run, and how to get it.

    The channels come first: the version of each channel, who moved it, when and why, and if the version meets the
    channel's policy.

    With --json: the manifest, byte for byte. Warnings on stderr name each artifact that a later evaluation refused, and
    say if the version is yanked or the files are gone. `reg ls NAME --json` shows the artifacts that this registry has,
    with states and speeds.
    With --benchmark: {ref, benchmarks: [document], speeds: {path: [speed]}}, oldest first; see `reg builtin schemas
    benchmark`.
    """
    reader = session.reader(remote)
    release = read_version(reader, Ref.parse(ref), yanked=True)
    if benchmark:
        from onnxreg.registry.trust.signatures import read_benchmarks

        benchmarks = read_benchmarks(release)
        speeds = {path: item.speeds for path, item in release.states.items() if item.speeds}
        session.show(
            {"ref": ref, "benchmarks": benchmarks, "speeds": speeds},
            None if benchmarks else f"no benchmark of {ref} is on record",
            (line for item in benchmarks for line in versions.benchmark(item)),
        )
        return
    if session.as_json:
        for doubt in versions.doubts(release):
            session.warn(doubt)
        write_bytes(release.data)
        return
    screen, details = versions.screen(release, remote, full)
    session.say(*versions.blocks(_production(release, reader), *screen, _proofs(release), *details))


def _production(published: Release, reader: RegistryReader) -> Iterator[str]:
    from onnxreg.registry.resolution import channel_statuses
    from onnxreg.registry.trust.known_heads import load_trust

    if published.yank:
        yield fold_line(printable(published.yank.words), "  ")
    try:
        channels = list(channel_statuses(reader, published.log.check(), load_trust()))
    except (IntegrityError, NotFoundError) as error:
        yield f"in production: unknown, since {printable(error.message)}"
        return
    for channel in channels:
        event = channel.line.event
        by = f" by {event.actor}" if event.actor else ""
        reason = f": {event.reason}" if event.reason else ""
        moved = f"in production: {channel.tag} is {channel.version} since {event.time}{by}{reason}"
        rollout = None if channel.rollout is None else str(channel.rollout)
        gate = {"": "no policy", "met": "meets its policy"}.get(channel.gate, f"stopped: {channel.gate}")
        details = "; ".join(filter(None, (channel.signed or "not signed", gate, rollout)))
        lines = map(printable, (moved, f"  {details}"))
        yield from (fold_line(line, "  ") for line in lines)


def _proofs(published: Release) -> Iterator[str]:
    paths = {artifact.digest: artifact.path for artifact in published.manifest.artifacts}
    for path, proof in versions.proofs(published).items():
        source = paths.get(proof.report.parent, proof.report.parent.short)
        yield f"proof: {path} is {proof.report.verdict} from {source}, {proof.authority}"
