"""`reg rollout`: the next version of a channel, for a share of its devices first."""

from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, NameArgument, Reason, RefArgument, RemoteOption, TargetRemote
from onnxreg.cli.render import output
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.registry.gates.promotion import Rollouts
    from onnxreg.registry.log.log import Log

EXAMPLES = (
    "reg rollout start acme/pii:2.0.0 --channel stable --percent 5",
    "reg rollout start acme/pii:2.0.0 --channel stable --percent 1 --where 'platform = android'",
    "reg rollout advance acme/pii --channel stable --percent 20 --remote s3://models/prod",
    "reg rollout halt acme/pii --channel stable --reason 'crashes on arm32'",
    "reg rollout finish acme/pii --channel stable",
    "reg rollout status acme/pii --json",
)
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
