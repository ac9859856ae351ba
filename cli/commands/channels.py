"""`reg policy`, `reg promote` and `reg rollout`: set the policies of channels, and move channels that have a policy."""

import json
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli.options import CHANNEL, NAME, REASON, REF, REMOTE, Session, argument, flag, option
from onnxreg.cli.output import counted, fields, printable, table
from onnxreg.schema.core.errors import ConflictError
from onnxreg.schema.core.ref import POLICY_LOG, Ref

if TYPE_CHECKING:
    from onnxreg.registry.gates import Promotions
    from onnxreg.registry.log.log import Log

EXAMPLES = (
    "reg policy show",
    "reg policy show --all",
    "reg policy set policy.toml",
    "reg policy set policy.toml --yes --reason 'after the review of March'",
    "reg promote acme/pii-small:1.2.0 stable --dry-run",
    "reg promote acme/pii-small:1.2.0 stable --reason 'release 12'",
    "reg rollout start acme/pii:2.0.0 --channel stable --percent 5",
    "reg rollout start acme/pii:2.0.0 --channel stable --percent 1 --where 'platform = android'",
    "reg rollout advance acme/pii --channel stable --percent 20 --remote s3://models/prod",
    "reg rollout halt acme/pii --channel stable --reason 'crashes on arm32'",
    "reg rollout finish acme/pii --channel stable",
    "reg rollout status acme/pii --json",
)


def policy_show(
    session: Session,
    every: bool = flag("Show every policy, oldest first.", "--all"),
    remote: str | None = REMOTE,
) -> None:
    """Show the current policy, when it was set, and by whom.

    With --json: {line, seq, time, actor, reason, rules}; line is the digest of the policy's line in the policy log.
    Without a policy, rules is empty and the other values are null. With --all: {policies: [...]}, a list of such
    documents.
    """
    from onnxreg.registry.gates import read_policies
    from onnxreg.schema.gates.policy import policy_of

    reader = session.reader(remote)
    log = read_policies(reader)
    about = "line=digest seq time=event.time actor=event.actor reason=event.reason"
    lines = log.lines if every else log.lines[-1:]
    documents = [fields(line, about) | {"rules": policy_of(line).to_json()["rule"]} for line in lines]
    none = f"there is no policy in {reader.url}: every channel may be moved"
    latest = documents[-1] if documents else dict.fromkeys(ABOUT) | {"rules": []}
    session.show(
        {"policies": documents} if every else latest,
        (line for document in documents for line in _shown(document)) if documents else none,
    )


ABOUT = ("line", "seq", "time", "actor", "reason")


def _shown(document: dict[str, Any]) -> Iterator[str]:
    yield from (f"{key:<8}{printable(str(document[key]))}" for key in ABOUT if document[key] is not None)
    for line in _rules(document["rules"]):
        yield from ("", line) if line == "[[rule]]" else (line,)
    yield ""


def _rules(rules: list[dict[str, Any]]) -> Iterator[str]:
    for rule in rules:
        yield "[[rule]]"
        values = {key: json.dumps(item, separators=(", ", " = ")) for key, item in rule.items()}  # as TOML
        yield from (f"{key} = {printable(value)}" for key, value in values.items())


def policy_set(
    session: Session,
    file: Path = argument("The policy: TOML, see docs/gates.md.", "FILE"),
    remote: str | None = REMOTE,
    reason: str | None = REASON,
    yes: bool = flag("Set it."),
) -> None:
    """Set the policy. The previous policy stays in the log. No channel is moved, but a channel that has a rule stops
    resolving if the channel's version does not meet the policy or was not promoted.

    The output shows removed and added lines and, on stderr, the channels and rollouts that would stop. Without --yes
    nothing is set, and the exit status is 5. An empty file ends the policy of every channel. If the current policy
    names keys (signed_by), one of these keys must sign the change; otherwise the exit status is 8.

    With --json: {rules, seq, stopped: [{name, channel, version, why}]}; rules is a count; seq is the number of the new
    line, or null if nothing was set.
    """
    from onnxreg.registry.gates import blocked_channels, read_policies, set_policy
    from onnxreg.registry.trust.known_heads import CheckedReader
    from onnxreg.schema.core.files import read_given
    from onnxreg.schema.gates.policy import read_policy

    policy = read_policy(read_given(file), str(file))
    registry, store = session.with_remote(remote)
    reader = CheckedReader(store or registry.store, registry.heads)
    log = read_policies(reader)
    is_new = not log.lines or log.policy != policy
    stopped = list(blocked_channels(reader, policy))
    before, after = (list(_rules(item.to_json()["rule"])) for item in (log.policy, policy))
    session.say(*list(unified_diff(before, after, lineterm="", n=len(before)))[3:])
    for channel in stopped:
        session.warn(f"stops: {channel['why']}")
    line, outcome = None, None if is_new else "nothing to do: this policy is in force"
    if yes:
        line = set_policy(store or registry.store, registry.heads, policy, registry.actor, reason)
        reader.read_index(POLICY_LOG)  # from now on an earlier log of policies is a rollback
    if line is not None and line.sig is None:
        session.warn("the line is not signed: anybody who writes there can append a laxer policy unnoticed")
    if line is not None:
        outcome = f"policy {line.seq} is in force: {counted(len(policy.rules), 'rule')}"
    session.show({"rules": len(policy.rules), "seq": line and line.seq} | {"stopped": stopped}, outcome)
    if is_new and not yes:
        would = f"it would stop {counted(len(stopped), 'channel')}"
        raise ConflictError(f"nothing was set; {would}", "to set it: --yes")


def promote(
    session: Session,
    ref: str = REF,
    channel: str = CHANNEL,
    dry_run: bool = flag("Show the findings, and move nothing."),
    remote: str | None = REMOTE,
    reason: str | None = REASON,
) -> None:
    """Move a channel to a version if the version meets the policy (`reg policy show`); otherwise exit status 8.

    The log keeps the findings as evidence. Whoever pulls from the channel verifies again that the version meets the
    policy (docs/gates.md).

    With --json: {ref, channel, policy_holds, moved, before, findings: [{requirement, verdict, detail}]}; before is the
    channel's previous version, or null.
    """
    promotions = _promotions(session, remote)
    judged, is_moved, held_before = promotions.promote(Ref.parse(ref), channel, dry_run, reason)
    outcome = None
    if is_moved:
        before = f", before {held_before}" if held_before else ""
        outcome = f"{judged.name}:{channel} is {judged.version}{before}"
    elif not judged.failed and dry_run:
        outcome = f"{judged.ref} may become {channel}"
    elif not judged.failed:
        outcome = f"nothing to do: {judged.name}:{channel} is {judged.version} under this policy"
    document = fields(judged, "ref channel findings") | {"policy_holds": not judged.failed}
    document |= {"moved": is_moved, "before": held_before}
    rows = [(finding.requirement, finding.verdict, finding.detail) for finding in judged.findings]
    session.show(document, table(("DEMAND", "VERDICT", "FOUND"), rows), outcome and ["", outcome])
    if judged.failed:
        raise judged.refusal()


ONE_CHANNEL = option("The channel, such as stable.", "--channel", default=...)
PERCENT = option("The share of the devices, from 0.01 to 100.", default=..., metavar="SHARE")


def rollout_start(
    session: Session,
    ref: str = REF,
    channel: str = ONE_CHANNEL,
    percent: float = PERCENT,
    where: str | None = option("Only these devices: 'app_version >= 3.2.0' (docs/rollouts.md)."),
    remote: str | None = REMOTE,
    reason: str | None = REASON,
) -> None:
    """Give a version to a share of a channel's devices. The other devices keep the channel's version.

    Each device decides by its own random seed. On a governed channel the version must meet the policy; otherwise the
    exit status is 8. Until `finish` or `halt`, no other verb moves the channel.

    With --json: {name, channel, version, rollout: {to, manifest, percent, salt, seq, where?, policy?, evidence?}};
    `version` is the version that the other devices get.
    """
    rollouts = _promotions(session, remote)
    _tell(session, channel, rollouts.start(Ref.parse(ref), channel, percent, where, reason))


def rollout_advance(
    session: Session,
    name: str = NAME,
    channel: str = ONE_CHANNEL,
    percent: float = PERCENT,
    remote: str | None = REMOTE,
    reason: str | None = REASON,
) -> None:
    """Give the version to more devices. Devices that have the version keep it. The policy is checked again.

    With --json: the document of `reg rollout start`.
    """
    _tell(session, channel, _promotions(session, remote).advance(name, channel, percent, reason))


def rollout_halt(
    session: Session,
    name: str = NAME,
    channel: str = ONE_CHANNEL,
    remote: str | None = REMOTE,
    reason: str | None = REASON,
) -> None:
    """Stop a rollout: every device gets the channel's version, including the devices that had the new version.

    With --json: the document of `reg rollout start`, in which `rollout` is null.
    """
    _tell(session, channel, _promotions(session, remote).halt(name, channel, reason))


def rollout_finish(
    session: Session,
    name: str = NAME,
    channel: str = ONE_CHANNEL,
    remote: str | None = REMOTE,
    reason: str | None = REASON,
) -> None:
    """Move the channel to the version that is rolled out. The policy is checked again.

    With --json: the document of `reg rollout start`, in which `rollout` is null.
    """
    _tell(session, channel, _promotions(session, remote).finish(name, channel, reason))


def rollout_status(session: Session, name: str = NAME, remote: str | None = REMOTE) -> None:
    """List the rollouts of a model.

    With --json: {name, rollouts: [{channel, version, rollout}]}; rollout is as in `reg rollout start`.
    """
    from onnxreg.registry.log.log import open_log

    state = open_log(session.reader(remote), name).state
    none = f"{name} has no rollout; `reg rollout start {name}:VERSION` begins one"
    documents, rows = [], []
    for tag, rollout in state.rollouts.items():
        version, share = state.channels[tag].version, f"{rollout.percent:g} %"
        documents.append({"channel": tag, "version": version, "rollout": rollout.to_json()})
        rows.append((tag, version, rollout.to, share, rollout.where or "every device"))
    header = ("CHANNEL", "VERSION", "ROLLS OUT", "SHARE", "WHERE")
    session.show({"name": name, "rollouts": documents}, table(header, rows) if rows else none)


def _promotions(session: Session, remote: str | None) -> "Promotions":
    from onnxreg.registry.gates import Promotions

    registry, store = session.with_remote(remote)
    return Promotions(store or registry.store, registry.heads, registry.actor)


def _tell(session: Session, channel: str, log: "Log") -> None:
    version, rollout = log.channels[channel].version, log.rollouts.get(channel)
    if rollout is None:
        outcome = f"{log.name}:{channel} is {version}, for every device"
    else:
        share = f"{rollout.percent:g} % of the devices{f' with {rollout.where}' if rollout.where else ''}"
        outcome = f"{log.name}:{channel} is {rollout.to} for {share}, and {version} for the others"
    document = {"name": log.name, "channel": channel, "version": str(version)}
    session.show(document | {"rollout": rollout and rollout.to_json()}, outcome)
