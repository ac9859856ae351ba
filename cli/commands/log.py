"""`reg log`: a model's history."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, MaxAge, NameArgument, Offline, RemoteOption
from onnxreg.cli.render import output
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.log.events import Attest, OptionalEvent, PolicyEvent, Publish
from onnxreg.schema.log.logline import LogLine

if TYPE_CHECKING:
    from onnxreg.registry.trust.signatures import SignatureVerdict

EXAMPLES = (
    "reg log acme/pii-small",
    "reg log acme/pii-small --json",
    "reg log acme/pii-small --remote origin --offline",
)


def command(
    session: Session,
    name: NameArgument,
    remote: RemoteOption = None,
    offline: Offline = False,
    max_age: MaxAge = None,
    as_json: Json = False,
) -> None:
    """Show every event of a model, in the order of the log, and verify the chain. `.policy` names the log of policies.

    TIME says when a line came into this registry. WHAT also says when one that was pushed or pulled was
    written, and where. Times are as claimed; nothing is ordered by them.

    Actors are shown as claimed; SIGNED BY names the key that signed the line, by its name in your trust
    file. The last signed line is the signed head: it vouches for all lines before it. A promotion is shown
    with its policy and evidence, a later evaluation with the artifact and its verdict, a signature or a
    proof with the key that made it.

    With --json: {name, registry, head, lines: [{seq, prev, digest, event, via?: {registry, seq, head, time?},
    signed: {status, keyid, key}}]}; status is trusted, unsigned, unknown, revoked, foreign or invalid (docs/signing.md).
    """
    from onnxreg.registry.gates.statements import words
    from onnxreg.registry.read.versions import read_log
    from onnxreg.registry.trust.signatures import SignatureJudge
    from onnxreg.registry.trust.trust_file import load_trust

    reader = session.limited(max_age).reader(remote, offline)
    log = read_log(reader, name)
    trust = load_trust()
    judge = SignatureJudge(trust, reader.registry_id, name, {line.seq: line.digest for line in log}.get)
    lines = [(line, judge.line(line)) for line in log]
    versions = {
        line.event.manifest: str(line.event.version) for line in log if isinstance(line.event, Publish)
    }
    session.show(
        {
            "name": name,
            "registry": reader.registry_id,
            "head": str(log[-1].digest),
            "lines": [_json(line, verdict) for line, verdict in lines],
        },
        output.table(
            ("SEQ", "TIME", "EVENT", "WHAT", "ACTOR", "SIGNED BY", "REASON"),
            (
                _row(line, verdict, _about(line, versions, words(line.event, line.seq, reader, judge)))
                for line, verdict in lines
            ),
        ),
    )


def _json(line: LogLine, verdict: "SignatureVerdict") -> dict[str, Any]:
    value = {
        "seq": line.seq,
        "prev": str(line.prev),
        "digest": str(line.digest),
        "event": line.event.to_json(),
    }
    if line.via is not None:
        value["via"] = line.via.to_json()
    return {**value, "signed": verdict.to_json()}


def _row(line: LogLine, verdict: "SignatureVerdict", about: list[str]) -> tuple[object, ...]:
    from onnxreg.registry.gates.statements import word_of

    event = line.event
    return (
        line.seq,
        line.time,
        word_of(event),
        " ".join([*about, *_origin(line)]),
        event.actor or "",
        str(verdict),
        event.reason or "",
    )


def _origin(line: LogLine) -> list[str]:
    """The registry that a line came from, and when it was written there."""
    return [] if line.via is None else [f"(written {line.event.time} in {line.via.registry[:12]}...)"]


def _about(line: LogLine, versions: Mapping[Digest, str], words: list[str]) -> list[str]:
    """The words of the column WHAT. An attestation is shown with the version that published its manifest."""
    event = line.event
    if isinstance(event, Attest):
        return [versions.get(event.manifest, event.manifest.short), *words]
    if isinstance(event, PolicyEvent):
        return [f"{len(event.rules)} rule{'' if len(event.rules) == 1 else 's'}"]
    value = event.to_json()
    about = [str(value[key]) for key in ("tag", "version") if key in value]
    if "manifest" in value and not isinstance(event, OptionalEvent):
        about.append(value["manifest"][7:19])
    return about + words
