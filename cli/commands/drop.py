"""`reg drop`: taking back a version that nobody else has."""

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import ExactRefArgument, Reason
from onnxreg.schema.core.ref import Ref

EXAMPLES = ("reg drop acme/pii-small:1.2.0 --reason 'wrong checkpoint'",)


def command(session: Session, ref: ExactRefArgument, reason: Reason = None) -> None:
    """Take back a version that was never pushed nor pulled; its number is free again.

    The next `reg gc` frees its bytes. If others may have the version, yank it instead: `reg yank`.
    """
    from onnxreg.registry.transfer.exchange import was_pushed

    registry, target = session.open(), Ref.parse(ref)
    decisions = registry.decisions(target.name)
    dropped = decisions.drop(target, lambda located: was_pushed(registry.store, located), reason)
    session.say(f"dropped {dropped.target.ref}; `reg gc` frees its bytes")
