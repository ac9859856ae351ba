"""`reg policy`: what channels demand of versions."""

from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, Reason, RemoteOption
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import ConflictError
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.gates.policy import policy_of, read_policy
from onnxreg.schema.log.logline import LogLine

EXAMPLES = (
    "reg policy show",
    "reg policy show --remote origin --json",
    "reg policy show --all",
    "reg policy set policy.toml",
    "reg policy set policy.toml --yes --reason 'after the review of March'",
)


def show(
    session: Session,
    every: Annotated[bool, typer.Option("--all", help="Show every policy, oldest first.")] = False,
    remote: RemoteOption = None,
    as_json: Json = False,
) -> None:
    """Show the policy in force, when it was set, and by whom.

    With --json: {line, seq, time, actor, reason, rules}; line is the digest of its line in the policy log;
    without a policy all are null, and rules is empty. With --all also: {policies: [the same]}.
    """
    from onnxreg.registry.gates.enforce import read_policies

    reader = session.reader(remote)
    log = read_policies(reader)
    lines = log.lines if every else log.lines[-1:]
    documents = [_about(line) | {"rules": policy_of(line).to_json()} for line in lines]
    lists = [list(_shown(document)) for document in documents]
    session.show(
        {"policies": documents} if every else documents[0] if documents else NONE,
        [line for number, lines in enumerate(lists) for line in (*([""] if number else []), *lines)]
        or _none(reader.url if remote else None),
    )


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
    for line in _rules(document["rules"]):
        yield from ("", line) if line == "[[rule]]" else (line,)


def _rules(rules: list[dict[str, Any]]) -> Iterator[str]:
    for rule in rules:
        yield "[[rule]]"
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


def set_policy(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy: TOML, see docs/gates.md.")],
    remote: Annotated[str | None, typer.Option(help="Set it in this remote (a name, path or URL).")] = None,
    reason: Reason = None,
    yes: Annotated[bool, typer.Option("--yes", help="Set it.")] = False,
    as_json: Json = False,
) -> None:
    """Put a policy in force. The previous one stays in the log; channels keep versions that meet the new one.

    The lines that go and come are shown, and on stderr the channels that stop resolving: their version does not meet
    it, or was not promoted. Without --yes nothing is set: exit status 5. Afterwards promote the version that a stopped
    channel holds, or another one. An empty file frees all channels.

    If REG_SIGNING_KEY names a key, the line is signed. If the policy in force names keys (signed_by), one of them must
    sign it: exit status 8 otherwise.

    With --json: {rules, seq, stopped: [{name, channel, version, why}]}; rules is their count, seq the number of the
    new line, null if nothing was set.
    """
    from onnxreg.registry.gates.enforce import read_policies
    from onnxreg.registry.gates.promotion import blocked_channels, set_policy
    from onnxreg.registry.trust.known_heads import CheckedReader
    from onnxreg.schema.core.given_file import read_given

    policy = read_policy(read_given(file), str(file))
    registry, store = session.with_remote(remote)
    reader = CheckedReader(store or registry.store, registry.heads)
    log = read_policies(reader)
    is_new = not log.lines or log.policy != policy
    stopped = list(blocked_channels(reader, policy))
    if not as_json:
        before, after = list(_rules(log.policy.to_json())), list(_rules(policy.to_json()))
        session.say(*list(unified_diff(before, after, lineterm="", n=len(before)))[3:])
    for channel in stopped:
        session.warn(f"stops: {channel.why}")
    line = None
    if yes:
        line = set_policy(store or registry.store, policy, registry.actor, reason)
        reader.read_index(POLICY_LOG)  # from now on an earlier log of policies is a rollback
    if line is not None and line.sig is None:
        session.warn(
            "the line is not signed: anybody who can write there can append a laxer policy unnoticed",
        )
    outcome = [] if is_new else ["nothing to do: this policy is in force"]
    if line is not None:
        outcome = [f"policy {line.seq} is in force: {output.counted(len(policy.rules), 'rule')}"]
    session.show(
        {
            "rules": len(policy.rules),
            "seq": line and line.seq,
            "stopped": [channel._asdict() for channel in stopped],
        },
        outcome,
    )
    if is_new and not yes:
        would = f"it would stop {output.counted(len(stopped), 'channel')}"
        raise ConflictError(f"nothing was set; {would}", "to set it: --yes")
