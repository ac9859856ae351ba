"""`reg promote`: moving a governed channel."""

from typing import Annotated, Any

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import ChannelArgument, Json, Reason, RefArgument
from onnxreg.cli.render import output
from onnxreg.registry.gates.promotion import Promotion

EXAMPLES = (
    "reg promote acme/pii-small:1.2.0 stable --dry-run",
    "reg promote acme/pii-small:1.2.0 stable --reason 'release 12'",
    "reg promote acme/pii-small:1.2.0 stable --remote origin --json",
)


def command(
    context: typer.Context,
    ref: RefArgument,
    channel: ChannelArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the findings, and move nothing.")] = False,
    remote: Annotated[str | None, typer.Option(help="Promote in this remote (a name, path or URL).")] = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Move a channel to a version if it meets the policy (see `reg policy show`); otherwise exit status 8.

    Every demand is listed with its finding. The event of the move names the policy and has these findings
    as evidence; everyone who resolves or pulls the channel checks them again.

    With --json: {ref, channel, policy_holds, moved, before, findings: [{requirement, verdict, detail}]};
    before is the channel's previous version, or null.
    """
    session: Session = context.obj
    registry, place = session.with_remote(remote)
    found = registry.promote(ref, channel, dry_run, reason, place)
    if as_json:
        output.write_json(_to_json(found))
    else:
        _show(session, found, dry_run)
    if not found.holds:
        raise found.refuse()


def _to_json(found: Promotion) -> dict[str, Any]:
    return {
        "ref": str(found.target.ref),
        "channel": found.channel,
        "policy_holds": found.holds,
        "moved": found.moved,
        "before": found.before,
        "findings": [finding.to_json() for finding in found.findings],
    }


def _show(session: Session, found: Promotion, dry_run: bool) -> None:
    session.table(
        ("DEMAND", "VERDICT", "FOUND"),
        [(finding.requirement, finding.verdict, finding.detail) for finding in found.findings],
    )
    channel = f"{found.target.name}:{found.channel}"
    if found.moved:
        before = f", before {found.before}" if found.before else ""
        session.say("", f"{channel} is {found.target.version}{before}")
    elif found.holds and dry_run:
        session.say("", f"{found.target.ref} may become {found.channel}")
    elif found.holds:
        session.say("", f"nothing to do: {channel} is {found.target.version} under this policy")
