"""`reg run`: an artifact in ONNX Runtime on this machine, against its golden vectors, on a text or on tensors."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.errors import needs
from onnxreg.cli.options import query_options
from onnxreg.cli.options.shared import Json, RefArgument, RemoteOption
from onnxreg.cli.render import output
from onnxreg.registry.deliver import trusted_read
from onnxreg.registry.read import resolution
from onnxreg.registry.support.disk import check_given
from onnxreg.schema.core.errors import GateError, InputError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.query.requirements import Query

if TYPE_CHECKING:
    from onnxreg.converters.runtime.golden import GoldenComparison
    from onnxreg.registry.transfer.unpack import UnpackedArtifact

EXAMPLES = (
    "reg run acme/pii-small --self-test",
    "reg run acme/pii-small --self-test --format ort-android --json",
    "reg run acme/pii-small --text 'Call Anna at 555-0100'",
    "reg run acme/pii-small:1.4.0 --input feeds.json --remote origin",
)
FEW = 6
"""Values of an output that people are shown."""


@query_options.takes_query
def command(
    context: typer.Context,
    ref: RefArgument,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Compare with the golden vectors of the artifact.")
    ] = False,
    text: Annotated[str | None, typer.Option(help="Find the labelled spans of this text.")] = None,
    feeds: Annotated[
        Path | None,
        typer.Option("--input", help="Run on these tensors: .npz, or JSON of nested lists by input name."),
    ] = None,
    query: Query = query_options.ANYTHING,
    device: query_options.OneDevice = None,
    remote: RemoteOption = None,
    as_json: Json = False,
) -> None:
    """Run an artifact on the CPU of this machine: the one that `reg resolve` chooses with the same options.

    With --self-test, a difference beyond the tolerances is exit status 8: this runtime computes something
    else. With --remote the files are fetched for this run only; `reg pull` keeps them.

    With --json: {name, version, path, runtime}, with --self-test {passed, cases: [{case, output, values,
    max_abs_error, atol, rtol, beyond, passed}]}, with --text {spans: [{start, end, label, text}]}, with
    --input {outputs: {name: {dtype, shape, data}}}.
    """
    if [self_test, text is not None, feeds is not None].count(True) != 1:
        raise InputError("say what to run it on", "one of --self-test, --text and --input")
    if feeds is not None:
        check_given(feeds)
    session: Session = context.obj
    reader = session.reader(remote)
    answer = trusted_read.resolve(reader, Ref.parse(ref), query, query_options.read_one_device(device))
    with _unpacked(session, reader, answer, as_json) as files:
        if text is not None:
            result = _tag(session, files, text, as_json)
        elif feeds is not None:
            result = _feed(session, files, feeds, as_json)
        else:
            result = _self_test(session, files, as_json)
        if as_json:
            output.write_json(_identity(answer) | result)
    if result.get("passed") is False:
        raise GateError(
            f"{answer.target.ref} {answer.artifact.path} gives other values here than where it was made",
            "do not use this runtime for it: another release of ONNX Runtime, or another artifact",
        )


@contextmanager
def _unpacked(
    session: Session, reader: Any, answer: resolution.Resolution, as_json: bool
) -> "Iterator[UnpackedArtifact]":
    from onnxreg.registry.transfer.unpack import unpacked

    with needs("onnx", "reg run"):
        from onnxreg.converters.runtime.run import runtime_version

        runtime_version()
    with ExitStack() as stack:
        with session.progress(f"reading {answer.artifact.path}", as_json) as progress:
            files = stack.enter_context(unpacked(reader, answer, progress))
        yield files


def _identity(answer: resolution.Resolution) -> dict[str, Any]:
    from onnxreg.converters.runtime.run import runtime_version

    version, path = str(answer.target.version), answer.artifact.path
    return {"name": answer.target.name, "version": version, "path": path, "runtime": runtime_version()}


def _self_test(session: Session, files: "UnpackedArtifact", as_json: bool) -> dict[str, Any]:
    from onnxreg.converters.runtime import golden, run

    vectors = files.sidecar(golden.ROLE)
    if vectors is None:
        raise NotFoundError(
            f"{files.artifact.path} has no golden vectors",
            "`reg export` makes them, `reg add` takes MODEL.golden.json along; or run it on tensors of your own: --input",
        )
    compared = run.self_test(files.main, vectors.read_bytes(), vectors.name)
    passed = all(comparison.passed for comparison in compared)
    if not as_json:
        session.table(
            ("CASE", "OUTPUT", "VALUES", "MAX ABS ERROR", "TOLERANCE", "VERDICT"), map(_row, compared)
        )
        session.say("", f"{files.artifact.path} in ONNX Runtime {run.runtime_version()}: {_verdict(passed)}")
    return {"passed": passed, "cases": [comparison.to_json() for comparison in compared]}


def _row(comparison: "GoldenComparison") -> tuple[object, ...]:
    verdict = _verdict(comparison.passed)
    return (
        comparison.case,
        comparison.output,
        comparison.values,
        f"{comparison.max_abs_error:.2e}",
        comparison.tolerance,
        verdict,
    )


def _verdict(passed: bool) -> str:
    return "pass" if passed else "fail"


def _tag(session: Session, files: "UnpackedArtifact", text: str, as_json: bool) -> dict[str, Any]:
    from onnxreg.converters.evaluation.tag_text import tag

    manifest = files.manifest
    tokenizer = next((file.path for file in manifest.files if file.path.endswith("tokenizer.json")), None)
    if tokenizer is None or not manifest.labels:
        raise InputError(f"{manifest.name} is not a token classifier with a tokenizer", "run it with --input")
    length = manifest.max_sequence_length or 512
    spans = tag(files.main, files.root / tokenizer, manifest.labels, length, text)
    if not as_json:
        session.table(("LABEL", "START", "END", "TEXT"), [(s.label, s.start, s.end, s.text) for s in spans])
        if not spans:
            session.say("no labelled spans")
    return {"spans": [span.to_json() for span in spans]}


def _feed(session: Session, files: "UnpackedArtifact", feeds: Path, as_json: bool) -> dict[str, Any]:
    from onnxreg.converters.runtime.run import Runnable, to_json

    graph = Runnable(files.main)
    outputs = to_json(graph.run(graph.read(feeds)))
    if not as_json:
        session.table(
            ("OUTPUT", "DTYPE", "SHAPE", "FIRST VALUES"), [_first(*item) for item in outputs.items()]
        )
    return {"outputs": outputs}


def _first(name: str, tensor: dict[str, Any]) -> tuple[str, ...]:
    values = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in tensor["data"][:FEW]]
    more = " ..." if len(tensor["data"]) > FEW else ""
    return name, tensor["dtype"], "x".join(map(str, tensor["shape"])), " ".join(values) + more
