"""`reg tag`: moving a channel."""

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import ChannelArgument, Reason, RefArgument, TargetRemote, check_channel_last
from onnxreg.cli.reports.decision_report import report_decision

EXAMPLES = (
    "reg tag acme/pii-small:1.2.0 stable --reason 'passed the field test'",
    "reg tag acme/pii-small:1.2.0 stable --remote origin",
)


def command(
    session: Session,
    ref: RefArgument,
    channel: ChannelArgument,
    remote: TargetRemote = None,
    reason: Reason = None,
) -> None:
    """Move a channel to a version; the log records the move."""
    check_channel_last("tag", ref, channel)
    registry, store = session.with_remote(remote)
    result = registry.tag(ref, channel, reason, store)
    name, version = f"{result.target.name}:{channel}", result.target.version
    report_decision(session, result, f"{name} is {version}", f"{name} is already {version}", store, reason)
