"""What `export`, `import` and `add` say of the version they made."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli import output, overview
from onnxreg.cli.session import Session

if TYPE_CHECKING:
    from onnxreg.registry.facade import Published


def announce(
    session: Session, published: "Published", as_json: bool, out: Path | None = None, **more: Any
) -> None:
    """The outcome for people, or `{ref, name, version, digest, manifest, output}` and whatever `more` holds."""
    if as_json:
        value = {
            "ref": str(published.ref),
            "name": published.name,
            "version": str(published.version),
            "digest": str(published.digest),
            "manifest": published.manifest.to_json(),
            "output": None if out is None else str(out),
        }
        output.write_json(value | more)
        return
    verb = "published" if published.new else "nothing new: this is"
    session.say(f"{verb} {published.ref}", f"manifest  {published.digest}", "")
    session.say(*overview.artifacts(published.manifest))
    for part in (overview.remarks, overview.translation):
        lines = list(part(published.manifest))
        if lines:
            session.say("", *lines)
    if out is not None:
        session.say("", f"written to {out}")
