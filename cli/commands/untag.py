"""`reg untag`: taking a channel away."""

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Reason, RefArgument, TargetRemote
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg untag acme/pii-small:beta --reason 'the trial is over'",
    "reg untag acme/pii-small:beta --remote origin",
)


def command(session: Session, ref: RefArgument, remote: TargetRemote = None, reason: Reason = None) -> None:
    """Remove a channel: NAME:CHANNEL. Versions are kept; the log records the removal."""
    parsed = Ref.parse(ref)
    if parsed.tag is None:
        raise InputError(f"{ref} names no channel", f"write {parsed.name}:CHANNEL")
    registry, store = session.with_remote(remote)
    version = registry.decisions(parsed.name, store).untag(parsed.name, parsed.tag, reason)
    session.say(f"{parsed.name}:{parsed.tag} is removed{session.place(store)}; it was {version}")
