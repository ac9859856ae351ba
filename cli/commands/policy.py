"""`reg policy`: what channels demand of versions."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, Reason, RemoteOption
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import ConflictError
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.log.logline import LogLine

if TYPE_CHECKING:
    from onnxreg.registry.gates.enforce import BlockedChannel

EXAMPLES = (
    "reg policy show",
    "reg policy show --remote origin --json",
    "reg policy show --all",
    "reg policy set policy.toml --reason 'after the review of March'",
    "reg policy set policy.toml --dry-run",
    "reg policy set policy.toml --replace",
    "reg policy approve policy.toml --key release --output release.approval",
    "reg policy set policy.toml --replace --approval release.approval --approval qa.approval",
)


def show(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Show every policy, oldest first.")] = False,
    remote: RemoteOption = None,
    as_json: Json = False,
) -> None:
    """Show the policy in force, when it was set, and by whom.

    With --json: {line, seq, time, actor, reason, rules}; line is the digest of its line in the policy log;
    without a policy all are null, and rules is empty. With --all also: {policies: [the same]}.
    """
    from onnxreg.registry.gates.policy_log import read_policies, rules_of

    session: Session = context.obj
    reader = session.reader(remote)
    log = read_policies(reader)
    lines = log.lines if every else log.lines[-1:]
    documents = [_about(line) | {"rules": rules_of(line).to_json()} for line in lines]
    if as_json:
        output.write_json({"policies": documents} if every else documents[0] if documents else NONE)
    elif not documents:
        session.say(_none(reader.url if remote else None))
    else:
        for number, document in enumerate(documents):
            session.say(*([""] if number else []), *_shown(document))


def _none(url: str | None) -> str:
    """That there is no policy, in the registry or at this remote."""
    if url is None:
        return "there is no policy: every channel may be moved with reg tag"
    message = f"there is no policy in {url}: every channel may be moved with reg push --tag"
    return f"{message}\nno push brings one along: reg policy set FILE --remote {quote(url)}"


NONE: dict[str, object] = {**dict.fromkeys(("line", "seq", "time", "actor", "reason")), "rules": []}


def _shown(document: dict[str, Any]) -> Iterator[str]:
    for key, item in document.items():
        if key != "rules" and item is not None:
            yield f"{key:<8}{output.printable(str(item))}"
    for rule in document["rules"]:
        yield from ("", "[[rule]]")
        yield from (f"{key} = {output.printable(_toml(item))}" for key, item in rule.items())
        if len(rule.get("signed_by", ())) > 1:
            number = rule.get("signatures", len(rule["signed_by"]))
            yield f"# {number} of {len(rule['signed_by'])} wanted: {', '.join(rule['signed_by'])}"


def _about(line: LogLine) -> dict[str, object]:
    event = line.event
    return {
        "line": str(line.digest),
        "seq": line.seq,
        "time": event.time,
        "actor": event.actor,
        "reason": event.reason,
    }


def _toml(value: object) -> str:
    """A value of a rule as TOML."""
    import json

    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {_toml(item)}' for key, item in value.items())}}}"
    return json.dumps(value)


def approve(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy: TOML, see docs/gates.md.")],
    target: Annotated[Path, typer.Option("--output", help="Write the approval to this file.")],
    key: Annotated[
        str | None, typer.Option(help="One of your keys; default: REG_SIGNING_KEY, else your only key.")
    ] = None,
    remote: RemoteOption = None,
) -> None:
    """Approve a policy that demands less than the one in force, for `reg policy set --approval`.

    The signature covers the policy, the registry and the policy that it follows: it counts for nothing else.
    What the policy loosens is listed on stderr.
    """
    from onnxreg.registry.gates.policy_log import approve_policy, read_policies
    from onnxreg.registry.signing import signing_key
    from onnxreg.schema.core.given_file import read_given
    from onnxreg.schema.gates.policy_comparison import weaker

    session: Session = context.obj
    reader, policy = session.reader(remote), read_policy(read_given(file), str(file))
    for loss in weaker(read_policies(reader).policy, policy):
        session.warn(f"loosens: {loss}")
    output.write_file(target, f"{approve_policy(reader, policy, signing_key(key))}\n".encode())
    words = ["reg", "policy", "set", str(file), "--replace", "--approval", str(target)]
    words += ["--remote", remote] if remote else []
    session.say(f"approved in {target}: {join(words)}")


def set_policy(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy: TOML, see docs/gates.md.")],
    remote: Annotated[str | None, typer.Option(help="Set it in this remote (a name, path or URL).")] = None,
    reason: Reason = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show which channels it would stop and what it would loosen; set nothing."
        ),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Set it even if it demands less than the policy in force.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Set it even if channels that resolve now stop resolving.")
    ] = False,
    approvals: Annotated[
        list[Path] | None,
        typer.Option(
            "--approval",
            help="An approval by `reg policy approve` of a policy that demands less; may be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Put a policy in force. The previous one stays in the log; channels keep versions that meet the new one.

    If the policy demands less than the previous one, the differences are listed on stderr, and it is
    refused (exit status 5) without --replace. If the previous one demanded signatures on a channel of which
    the new one demands less (signed_by), as many of these keys must approve it, or sign the line: exit
    status 8 otherwise.

    Channels whose version does not meet it, or was not promoted, stop resolving. They are listed first, on
    stderr, and without --yes nothing is set: exit status 5. Then promote the version that a channel holds, or
    another one. An empty file frees all channels. If REG_SIGNING_KEY names a key, the line is signed.

    With --json: {rules, seq, stopped: [{name, channel, version, why}], weaker: [{channel, models, demand,
    term, before, after}]}; rules is their count, seq the number of the new line, null if nothing was set.
    Demand is `channel` if one is no longer governed; term is the weaker key of the rule (`signatures` of
    the demand `signed_by`), before and after are its values.
    """
    from onnxreg.schema.core.given_file import read_given
    from onnxreg.schema.gates.policy_comparison import weaker

    session: Session = context.obj
    policy = read_policy(read_given(file), str(file))
    registry, store = session.with_remote(remote)
    less = weaker(registry.policies(store).policy, policy)
    for loss in less if replace or dry_run else ():
        session.warn(f"loosens: {loss}")
    stopped = registry.blocked_channels(policy, store)
    for change in stopped:
        session.warn(f"stops: {change.why}")
    if stopped and not (dry_run or yes):
        _refuse_to_stop(stopped, registry.blocked_channels(registry.policies(store).policy, store))
    signatures = [read_given(path).decode(errors="replace").strip() for path in approvals or ()]
    line = None if dry_run else registry.set_policy(policy, reason, store, replace, signatures)
    if line is not None and line.sig is None:
        session.warn(
            "the line is not signed: anybody who can write there can append a laxer policy unnoticed",
        )
    if as_json:
        value: dict[str, Any] = {"rules": len(policy.rules), "seq": line and line.seq}
        value |= {
            "stopped": [change.to_json() for change in stopped],
            "weaker": [change.to_json() for change in less],
        }
        output.write_json(value)
    elif dry_run:
        session.say(f"it would stop {output.counted(len(stopped), 'channel')}")
    elif line is None:
        session.say("nothing to do: this policy is in force")
    else:
        session.say(f"policy {line.seq} is in force: {output.counted(len(policy.rules), 'rule')}")


def _refuse_to_stop(stopped: "Sequence[BlockedChannel]", before: "Sequence[BlockedChannel]") -> None:
    """ConflictError if a policy would stop channels that resolve now; `before` are those that do not."""
    already = {(item.name, item.channel) for item in before}
    new = [item for item in stopped if item.channel is not None and (item.name, item.channel) not in already]
    if new:
        first = f"reg promote {new[0].name}:{new[0].version} {new[0].channel}"
        raise ConflictError(
            f"the policy would stop {output.counted(len(new), 'channel')}: nothing was set",
            f"to set it all the same: --yes; then promote what each channel holds: {first}",
        )
