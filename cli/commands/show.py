"""`reg show`: one version, as its manifest tells it, or how fast it ran."""

from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, RefArgument, RemoteOption
from onnxreg.cli.render import manifest_view, output
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.schema.formats.benchmark import BenchmarkDocument

EXAMPLES = (
    "reg show acme/pii-small",
    "reg show acme/pii-small:1.2.0 --json > openmed-onnx.json",
    "reg show acme/pii-small --remote origin",
    "reg show acme/digits:1.0.0 --benchmark",
)


def command(
    context: typer.Context,
    ref: RefArgument,
    remote: RemoteOption = None,
    benchmark: Annotated[
        bool, typer.Option("--benchmark", help="How fast it ran, if that was attested.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the contents of a version: artifacts, certification, checks and files.

    If only some of the artifacts are held here, the version is partial, and a column says which.

    The state of an artifact is that of its manifest, or refused if a later evaluation refused the same
    bytes, in this version or another.

    With --json: the manifest, byte for byte, so that its SHA-256 is the manifest's digest; `reg ls NAME
    --json` has the held artifacts and their states. With --benchmark: {ref, benchmarks: [document]}, oldest
    first; see `reg schema benchmark`.
    """
    from onnxreg.registry.read.versions import read_version

    session: Session = context.obj
    if benchmark:
        from onnxreg.registry.gates.benchmarks import read_benchmarks

        _show_benchmarks(session, str(ref), read_benchmarks(session.reader(remote), Ref.parse(ref)), as_json)
        return
    published = read_version(session.reader(remote), Ref.parse(ref))
    if as_json:
        output.write_bytes(published.data)
        return
    manifest = published.manifest
    session.say(str(published.ref), f"manifest {published.digest}", *manifest_view.facts(manifest))
    if published.held is not None:
        session.say(f"held     partial: reg pull {published.ref} fetches the rest")
    session.say("", *manifest_view.artifacts(published))
    details = (manifest_view.doubts(published), manifest_view.remarks(published))
    for lines in map(list, (*details, manifest_view.checks(manifest), manifest_view.files(manifest))):
        if lines:
            session.say("", *lines)


def _show_benchmarks(
    session: Session, ref: str, benchmarks: "list[BenchmarkDocument]", as_json: bool
) -> None:
    if as_json:
        output.write_json({"ref": ref, "benchmarks": [benchmark.to_json() for benchmark in benchmarks]})
        return
    if not benchmarks:
        session.say(f"no benchmark of {ref} is on record")
    for benchmark in benchmarks:
        session.say(*manifest_view.benchmark(benchmark))
