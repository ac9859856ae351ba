"""What `push` and `pull` say of what they moved."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli import output
from onnxreg.cli.session import Session

if TYPE_CHECKING:
    from onnxreg.registry.copying import Transferred


def announce(
    session: Session,
    verb: str,
    done: "Transferred",
    remote: str,
    as_json: bool,
    out: Path | None = None,
    **more: Any,
) -> None:
    """One line, or `{ref, remote, events, blobs, bytes, output}` and whatever `more` holds."""
    ref = f"{done.name}:{done.versions[0]}"
    if as_json:
        moved = {"events": done.events, "blobs": done.blobs, "bytes": done.size}
        output.write_json({"ref": ref, "remote": remote, **moved, "output": out and str(out), **more})
        return
    link = "to" if verb == "pushed" else "from"
    if done.events or done.blobs:
        what = f"{output.counted(done.blobs, 'blob')}, {output.size(done.size)}"
        session.say(f"{verb} {ref} {link} {remote}: {what}")
    else:
        session.say(f"nothing to do: {ref} is up to date with {remote}")
    if out is not None:
        session.say(f"written to {out}")
