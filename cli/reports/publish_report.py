"""The report of `export`, `import` and `add` about the published, or already existing, version."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.render import output
from onnxreg.schema.core import canonical
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.converters.engine.latency import LatencyTable
    from onnxreg.registry.log.lookup import Release
    from onnxreg.registry.registry import Registry

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
    release: "Release",
    out: Path | None = None,
    latency: "LatencyTable | None" = None,
    remarks: Iterable[str] = (),
    **more: Any,
) -> None:
    """The outcome for people, or `{ref, name, version, new, digest, manifest, states, yanked, newer, output}`, `latency` and `more`.

    `remarks` are further lines for people.
    """
    timed = [] if latency is None else latency.to_json()
    document = _document(release, out) | ({} if latency is None else {"latency": timed}) | more
    times = [""] if timed else []
    for item in timed:
        graphs = f"{' + '.join(item['graphs'])} (one row, {item['threads']} thread)"
        times.append(f"latency: p50 {item['p50_ms']:g} ms, p95 {item['p95_ms']:g} ms: {graphs}")
    written = [] if out is None else ["", f"written to {out}"]
    session.show(document, _new(release) if release.new else _existing(release), written, times, remarks)
    if release.new and release.yank is not None and not session.as_json:
        undo = f"`reg yank {release.ref} --undo` takes that back"
        session.warn(f"warning: {release.yank.words}; {undo}")


def report_preview(session: Session, release: "Release") -> None:
    """The version that a dry run would publish, for people, or in the form of `report_published` with `dry_run`."""
    from onnxreg.cli.render import manifest_view

    plan = f"{release.ref} would be new" if release.new else existing_note(release)
    parts = (manifest_view.doubts, manifest_view.remarks, manifest_view.search)
    session.show(
        _document(release, None) | {"dry_run": True},
        f"{output.printable(plan)}; nothing was published",
        "",
        _parts(release, parts),
    )


def _document(release: "Release", out: Path | None) -> dict[str, Any]:
    yank = release.yank
    return {
        "ref": str(release.ref),
        "name": release.name,
        "version": str(release.version),
        "new": release.new,
        "digest": str(release.digest),
        "manifest": canonical.decode(release.data, "manifest"),
        "states": {state.path: state.state for state in release.states},
        "yanked": None if yank is None else {"version": str(yank.version), "reason": yank.reason},
        "newer": None if release.newer is None else str(release.newer),
        "output": None if out is None else str(out),
    }


def _new(release: "Release") -> Iterator[str]:
    from onnxreg.cli.render import manifest_view

    yield from (f"published {release.ref}", f"manifest {release.digest}", "")
    yield from _parts(
        release,
        (
            manifest_view.doubts,
            manifest_view.remarks,
            manifest_view.translation,
            manifest_view.search,
            manifest_view.next_steps,
        ),
    )


def _parts(release: "Release", parts: "Iterable[Part]") -> Iterator[str]:
    from onnxreg.cli.render import manifest_view

    yield from manifest_view.artifacts(release)
    for part in parts:
        if lines := list(part(release)):
            yield from ("", *lines)


def _existing(release: "Release") -> Iterator[str]:
    yield f"nothing new: {output.printable(existing_note(release))}"
    yield f"manifest {release.digest}"
    yield from (output.printable(state.remark) for state in release.states if state.remark)


def existing_note(release: "Release") -> str:
    """The words about a version that is there already: why it is yanked, or that another one is newer."""
    if release.yank is not None:
        return release.yank.words
    if release.newer is None:
        return f"this is {release.ref}"
    return f"these are the bytes of {release.ref}, and {release.newer} is the newest; --version publishes them again"
