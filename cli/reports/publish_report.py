"""The report of `export`, `import` and `add` about the published, or already existing, version."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.render import output
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.log.summary import ArtifactStates

if TYPE_CHECKING:
    from onnxreg.converters.engine.latency import LatencyTable
    from onnxreg.registry.read.versions import PublishedVersion
    from onnxreg.registry.registry import Registry

    Part = Callable[[PublishedVersion], Iterable[str]]


def write_out(registry: "Registry", published: "PublishedVersion", out: Path | None) -> None:
    """Write the files of a version, if a directory is given; an error says that the version was published."""
    if out is None:
        return
    from onnxreg.cli.errors import prefix_outcome

    outcome = f"published {published.ref}" if published.new else f"nothing new: this is {published.ref}"
    with prefix_outcome(outcome):
        registry.write_out(Ref(published.name, digest=published.digest), out)


def report_published(
    session: Session,
    published: "PublishedVersion",
    out: Path | None = None,
    latency: "LatencyTable | None" = None,
    **more: Any,
) -> None:
    """The outcome for people, or `{ref, name, version, digest, manifest, states, output}`, `latency` and `more`."""
    if session.as_json or not published.new:
        ref, digest, states = published.ref, published.digest, published.states
        more |= {} if latency is None else {"latency": latency.to_json()}
        report_existing(session, ref, digest, published.data, states, out, **more)
    else:
        _report_new(session, published, out)
    if latency is not None and not session.as_json:
        session.say("", *map(_latency_line, latency.to_json()))


def report_preview(session: Session, published: "PublishedVersion") -> None:
    """The version that a dry run would publish, for people, or in the form of `report_published` with `dry_run`."""
    ref, digest, states = published.ref, published.digest, published.states
    if session.as_json:
        report_existing(session, ref, digest, published.data, states, dry_run=True)
        return
    from onnxreg.cli.render import manifest_view

    session.say(f"{ref} would be {'new' if published.new else 'what it is'}; nothing was published", "")
    _say_parts(session, published, (manifest_view.doubts, manifest_view.remarks, manifest_view.search))


def _latency_line(item: Mapping[str, Any]) -> str:
    return (
        f"latency: p50 {item['p50_ms']:g} ms, p95 {item['p95_ms']:g} ms: {' + '.join(item['graphs'])} "
        f"(one row, {item['threads']} thread)"
    )


def _report_new(session: Session, published: "PublishedVersion", out: Path | None) -> None:
    from onnxreg.cli.render import manifest_view

    parts: tuple[Part, ...] = (
        manifest_view.doubts,
        manifest_view.remarks,
        manifest_view.translation,
        manifest_view.search,
        manifest_view.next_steps,
    )
    session.say(f"published {published.ref}", f"manifest {published.digest}", "")
    _say_parts(session, published, parts)
    _say_written(session, out)


def _say_parts(session: Session, published: "PublishedVersion", parts: "Iterable[Part]") -> None:
    from onnxreg.cli.render import manifest_view

    session.say(*manifest_view.artifacts(published))
    for part in parts:
        if lines := list(part(published)):
            session.say("", *lines)


def report_existing(
    session: Session,
    ref: Ref,
    digest: Digest,
    data: bytes,
    states: ArtifactStates,
    out: Path | None = None,
    **more: Any,
) -> None:
    """The same if nothing had to be published. Light: the manifest, of which `data` is the document, is not read."""
    if session.as_json:
        value = {
            "ref": str(ref),
            "name": ref.name,
            "version": ref.tag,
            "digest": str(digest),
            "manifest": canonical.decode(data, "manifest"),
            "states": {state.path: state.state for state in states},
            "output": None if out is None else str(out),
        }
        output.write_json(value | more)
        return
    session.say(f"nothing new: this is {ref}", f"manifest {digest}")
    session.say(*(output.printable(state.remark) for state in states if state.remark))
    _say_written(session, out)


def _say_written(session: Session, out: Path | None) -> None:
    if out is not None:
        session.say("", f"written to {out}")
