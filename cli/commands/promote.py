"""`reg promote`: moving a governed channel."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import (
    ChannelArgument,
    Json,
    Reason,
    RefArgument,
    TargetRemote,
    check_channel_last,
)
from onnxreg.cli.render import output
from onnxreg.registry.gates.promotion import promote
from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg promote acme/pii-small:1.2.0 stable --dry-run",
    "reg promote acme/pii-small:1.2.0 stable --reason 'release 12'",
    "reg promote acme/pii-small:1.2.0 stable --remote origin --json",
)


def command(
    session: Session,
    ref: RefArgument,
    channel: ChannelArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the findings, and move nothing.")] = False,
    remote: TargetRemote = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Move a channel to a version if it meets the policy (see `reg policy show`); otherwise exit status 8.

    Every demand is listed with its finding. The event of the move names the policy and has these findings
    as evidence; everyone who pulls the channel checks them again (docs/gates.md).

    With --json: {ref, channel, policy_holds, moved, before, findings: [{requirement, verdict, detail}]};
    before is the channel's previous version, or null.
    """
    check_channel_last("promote", ref, channel)
    registry, store = session.with_remote(remote)
    target, is_remote = store or registry.store, store is not None
    promotion = promote(
        target, registry.heads, Ref.parse(ref), channel, dry_run, reason, registry.actor, is_remote
    )
    judged, channel_now = promotion.judged, ""
    if promotion.moved:
        before = f", before {promotion.before}" if promotion.before else ""
        channel_now = f"{judged.name}:{channel} is {judged.version}{before}"
    elif not judged.failed and dry_run:
        channel_now = f"{judged.ref} may become {channel}"
    elif not judged.failed:
        channel_now = f"nothing to do: {judged.name}:{channel} is {judged.version} under this policy"
    document = {
        "ref": judged.ref,
        "channel": judged.channel,
        "policy_holds": not judged.failed,
        "moved": promotion.moved,
        "before": promotion.before and str(promotion.before),
        "findings": [finding.to_json() for finding in judged.findings],
    }
    rows = [(finding.requirement, finding.verdict, finding.detail) for finding in judged.findings]
    session.show(
        document,
        output.table(("DEMAND", "VERDICT", "FOUND"), rows),
        ["", channel_now] if channel_now else [],
    )
    if judged.failed:
        raise judged.refusal()
