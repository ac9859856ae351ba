"""The report of `export`, `import` and `add` about the published, or already existing, version."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.render import output
from onnxreg.registry.log.yanked_bytes import words_of
from onnxreg.schema.core import canonical
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.converters.engine.latency import LatencyTable
    from onnxreg.registry.read.versions import Release
    from onnxreg.registry.registry import Registry
    from onnxreg.schema.core.ref import Version
    from onnxreg.schema.log.events import Yank

    Part = Callable[[Release], Iterable[str]]


def write_out(registry: "Registry", published: "Release", out: Path | None) -> None:
    """Write the files of a version, if a directory is given; an error says that the version was published."""
    if out is None:
        return
    from onnxreg.cli.errors import prefix_outcome

    outcome = f"published {published.ref}" if published.new else f"nothing new: this is {published.ref}"
    with prefix_outcome(outcome):
        registry.write_out(Ref(published.name, digest=published.digest), out)


def report_published(
    session: Session,
    published: "Release",
    out: Path | None = None,
    latency: "LatencyTable | None" = None,
    **more: Any,
) -> None:
    """The outcome for people, or `{ref, name, version, digest, manifest, states, output}`, `latency` and `more`."""
    if session.as_json or not published.new:
        more |= {} if latency is None else {"latency": latency.to_json()}
        report_existing(session, published, out, **more)
    else:
        _report_new(session, published, out)
        if published.yank is not None:
            undo = f"`reg yank {published.ref} --undo` takes that back"
            session.warn(f"warning: {words_of(published.yank)}; {undo}")
    if latency is not None and not session.as_json:
        session.say("", *map(_latency_line, latency.to_json()))


def report_preview(session: Session, published: "Release") -> None:
    """The version that a dry run would publish, for people, or in the form of `report_published` with `dry_run`."""
    if session.as_json:
        report_existing(session, published, dry_run=True)
        return
    from onnxreg.cli.render import manifest_view

    ref, yank, newer = published.ref, published.yank, published.newer
    plan = f"{ref} would be new" if published.new else existing_note(ref, yank, newer)
    session.say(f"{output.printable(plan)}; nothing was published", "")
    _say_parts(session, published, (manifest_view.doubts, manifest_view.remarks, manifest_view.search))


def _latency_line(item: Mapping[str, Any]) -> str:
    return (
        f"latency: p50 {item['p50_ms']:g} ms, p95 {item['p95_ms']:g} ms: {' + '.join(item['graphs'])} "
        f"(one row, {item['threads']} thread)"
    )


def _report_new(session: Session, published: "Release", out: Path | None) -> None:
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


def _say_parts(session: Session, published: "Release", parts: "Iterable[Part]") -> None:
    from onnxreg.cli.render import manifest_view

    session.say(*manifest_view.artifacts(published))
    for part in parts:
        if lines := list(part(published)):
            session.say("", *lines)


def report_existing(session: Session, release: "Release", out: Path | None = None, **more: Any) -> None:
    """The same if nothing had to be published."""
    if session.as_json:
        yank = release.yank
        value = {
            "ref": str(release.ref),
            "name": release.name,
            "version": str(release.version),
            "digest": str(release.digest),
            "manifest": canonical.decode(release.data, "manifest"),
            "states": {state.path: state.state for state in release.states},
            "yanked": None if yank is None else {"version": str(yank.version), "reason": yank.reason},
            "output": None if out is None else str(out),
        }
        output.write_json(value | more)
        return
    note = output.printable(existing_note(release.ref, release.yank, release.newer))
    session.say(f"nothing new: {note}", f"manifest {release.digest}")
    session.say(*(output.printable(state.remark) for state in release.states if state.remark))
    _say_written(session, out)


def existing_note(ref: Ref, yank: "Yank | None", newer: "Version | None") -> str:
    """The words about a version that is there already: why it is yanked, or that another one is newer."""
    if yank is not None:
        return words_of(yank)
    if newer is None:
        return f"this is {ref}"
    return f"these are the bytes of {ref}, and {newer} is the newest; --version publishes them again"


def _say_written(session: Session, out: Path | None) -> None:
    if out is not None:
        session.say("", f"written to {out}")
