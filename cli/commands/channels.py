"""`reg promote`, `rollout`: versions of governed channels, for all devices or for a share of them first."""

from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import (
    ChannelArgument,
    Json,
    NameArgument,
    Reason,
    RefArgument,
    RemoteOption,
    TargetRemote,
    check_channel_last,
)
from onnxreg.cli.render import output
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.registry.gates.promotion import Rollouts
    from onnxreg.registry.log.log import Log

EXAMPLES = (
    "reg promote acme/pii-small:1.2.0 stable --dry-run",
    "reg promote acme/pii-small:1.2.0 stable --reason 'release 12'",
    "reg promote acme/pii-small:1.2.0 stable --remote origin --json",
    "reg rollout start acme/pii:2.0.0 --channel stable --percent 5",
    "reg rollout start acme/pii:2.0.0 --channel stable --percent 1 --where 'platform = android'",
    "reg rollout advance acme/pii --channel stable --percent 20 --remote s3://models/prod",
    "reg rollout halt acme/pii --channel stable --reason 'crashes on arm32'",
    "reg rollout finish acme/pii --channel stable",
    "reg rollout status acme/pii --json",
)


def promote(
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
    from onnxreg.registry.gates.promotion import promote as move_channel

    check_channel_last("promote", ref, channel)
    registry, store = session.with_remote(remote)
    target, is_remote = store or registry.store, store is not None
    promotion = move_channel(
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


Channel = Annotated[str, typer.Option("--channel", help="The channel, such as stable.")]
Percent = Annotated[
    float, typer.Option("--percent", help="The share of the devices, from 0.01 to 100.", metavar="SHARE")
]


def start(
    session: Session,
    ref: RefArgument,
    channel: Channel,
    percent: Percent,
    where: Annotated[
        str | None,
        typer.Option(
            help="Only devices for which this is true, such as 'app_version >= 3.2.0'; see docs/rollouts.md."
        ),
    ] = None,
    remote: TargetRemote = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Give a version to a share of a channel's devices; the others keep what the channel holds.

    Each device decides by its own random seed, and reports nothing. On a governed channel the version must
    meet the policy (exit status 8 otherwise). Until `finish` or `halt`, no other verb moves the channel.

    With --json: {name, channel, version, rollout: {to, manifest, percent, salt, seq, where?, policy?,
    evidence?}}; `version` is what the other devices get.
    """
    rollouts = _rollouts(session, remote)
    _tell(session, channel, rollouts.start(Ref.parse(ref), channel, percent, where, reason))


def advance(
    session: Session,
    name: NameArgument,
    channel: Channel,
    percent: Percent,
    remote: TargetRemote = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Give the version to more devices; those that have it keep it. The policy is checked again.

    With --json the same as `reg rollout start`.
    """
    _tell(session, channel, _rollouts(session, remote).advance(name, channel, percent, reason))


def halt(
    session: Session,
    name: NameArgument,
    channel: Channel,
    remote: TargetRemote = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Stop a rollout: every device gets what the channel holds, also those that had the new version.

    With --json the same as `reg rollout start`; `rollout` is null.
    """
    _tell(session, channel, _rollouts(session, remote).halt(name, channel, reason))


def finish(
    session: Session,
    name: NameArgument,
    channel: Channel,
    remote: TargetRemote = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Move the channel to the version that is rolled out. The policy is checked again.

    With --json the same as `reg rollout start`; `rollout` is null.
    """
    _tell(session, channel, _rollouts(session, remote).finish(name, channel, reason))


def status(session: Session, name: NameArgument, remote: RemoteOption = None, as_json: Json = False) -> None:
    """List the rollouts of a model.

    With --json: {name, rollouts: [{channel, version, rollout: {to, manifest, percent, salt, seq, where?,
    policy?, evidence?}}]}.
    """
    from onnxreg.registry.log.lookup import read_log

    state = read_log(session.reader(remote), name).state
    rows = [(tag, str(state.channels[tag].version), rollout) for tag, rollout in state.rollouts.items()]
    documents = [
        {"channel": tag, "version": version, "rollout": rollout.to_json()} for tag, version, rollout in rows
    ]
    none = f"{name} has no rollout; `reg rollout start {name}:VERSION` begins one"
    table = output.table(
        ("CHANNEL", "VERSION", "ROLLS OUT", "SHARE", "WHERE"),
        [
            (tag, version, str(rollout.to), f"{rollout.percent:g} %", rollout.where or "every device")
            for tag, version, rollout in rows
        ],
    )
    session.show({"name": name, "rollouts": documents}, table if rows else none)


def _rollouts(session: Session, remote: str | None) -> "Rollouts":
    from onnxreg.registry.gates.promotion import Rollouts

    registry, store = session.with_remote(remote)
    return Rollouts(store or registry.store, registry.heads, registry.actor, store is not None)


def _tell(session: Session, channel: str, log: "Log") -> None:
    version, rollout = log.channels[channel].version, log.rollouts.get(channel)
    if rollout is None:
        outcome = f"{log.name}:{channel} is {version}, for every device"
    else:
        share = f"{rollout.percent:g} % of the devices{f' with {rollout.where}' if rollout.where else ''}"
        outcome = f"{log.name}:{channel} is {rollout.to} for {share}, and {version} for the others"
    document = {"name": log.name, "channel": channel, "version": str(version)}
    session.show(document | {"rollout": rollout and rollout.to_json()}, outcome)
