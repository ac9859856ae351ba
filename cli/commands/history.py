"""`reg log` and `reg history`: show the events of a model, and how its figures changed from version to version."""

from collections.abc import Mapping
from typing import Any

from onnxreg.cli.options import MAX_AGE, NAME, OFFLINE, PRECISION, REMOTE, Session, option
from onnxreg.cli.output import counted, fields, number, printable, size, standing, table
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.log.events import Attest, OptionalEvent, PolicyEvent, Publish, Timing

EXAMPLES = (
    "reg log acme/pii-small",
    "reg log acme/pii-small --remote origin --offline",
    "reg history acme/pii-small",
    "reg history acme/pii-small --metric DATE --precision int8",
)


def log(
    session: Session,
    name: str = NAME,
    remote: str | None = REMOTE,
    offline: bool = OFFLINE,
    max_age: str | None = MAX_AGE,
) -> None:
    """Show every event of a model, in the order of the log, and verify the chain.

    If NAME is `.policy`, show the log of policies.

    TIME says when a line came into this registry. For a line that was pushed or pulled, WHAT also says when and in
    which registry it was written. Times and actors are claims of the writers. SIGNED BY names the key that signed the
    line, by its name in your trust file. The last signed line vouches for all lines before it.

    With --json: {name, registry, head, lines: [{seq, prev, digest, event, via?: {registry, seq, head, time?}, signed:
    {status, keyid, key}}]}; status is trusted, unsigned, unknown, revoked, foreign or invalid (docs/signing.md).
    """
    from onnxreg.registry.log.log import read_lines
    from onnxreg.registry.trust.known_heads import load_trust
    from onnxreg.registry.trust.signatures import SignatureJudge, event_details, word_of

    reader = session.with_max_age(max_age).reader(remote, offline)
    log = read_lines(reader, name)
    trust = load_trust()
    judge = SignatureJudge(trust, reader.registry_id, name, {line.seq: line.digest for line in log}.get)
    versions = {
        line.event.manifest: str(line.event.version) for line in log if isinstance(line.event, Publish)
    }
    documents, rows = list[dict[str, Any]](), list[tuple[object, ...]]()
    for line in log:
        event, verdict = line.event, judge.line(line)
        via = {} if line.via is None else {"via": line.via}
        documents.append(fields(line, "seq prev digest event") | via | {"signed": verdict})
        about = _about(event, versions, event_details(event, line.seq, reader, judge))
        if line.via is not None:
            about.append(f"(written {event.time} in {line.via.registry[:12]}...)")
        what = " ".join(about)
        rows.append((line.seq, line.time, word_of(event), what, event.actor, verdict, event.reason))
    session.show(
        {"name": name, "registry": reader.registry_id, "head": log[-1].digest, "lines": documents},
        table(("SEQ", "TIME", "EVENT", "WHAT", "ACTOR", "SIGNED BY", "REASON"), rows),
    )


def _about(event: Any, versions: Mapping[Digest, str], words: list[str]) -> list[str]:
    if isinstance(event, Attest | Timing):
        return [versions.get(event.manifest, event.manifest.short), *words]
    if isinstance(event, PolicyEvent):
        return [counted(len(event.rules), "rule")]
    value = event.to_json()
    about = [str(value[key]) for key in ("tag", "version") if key in value]
    if "manifest" in value and not isinstance(event, OptionalEvent):
        about.append(value["manifest"][7:19])
    return about + words


COLUMNS = ("VERSION", "DATE", "STATE", "ARTIFACT", "SIZE", "VERDICT", "LATENCY", "VALUE", "95 %", "")
LIMIT = 20  # versions to show


def history(
    session: Session,
    name: str = NAME,
    metric: str | None = option("A check's name, or its end, such as a label; default: the loss of recall."),
    format_name: str | None = option("Only artifacts of this format.", "--format"),
    precision: str | None = PRECISION,
    last: int = option("The number of versions.", default=LIMIT, min=1, max=1000),
    remote: str | None = REMOTE,
) -> None:
    """Show how size, a figure and the verdict changed from version to version, newest first.

    Each line is about one version. It shows the smallest artifact that has the figure. Figures can be compared only if
    they were measured on the same suite.

    With --json: {name, metric, versions: [{version, manifest, time, actor, status, channels, artifact: {path, format,
    precision, size, state, speeds?, figures}, value, interval, suite, verdict, artifacts}]}; artifacts are documents
    like artifact. artifact is null if the manifest was taken down. value is null if the artifact lacks the figure.
    """
    from onnxreg.registry.log.contents import read_history
    from onnxreg.registry.log.log import load
    from onnxreg.schema.compare.version_history import model_history
    from onnxreg.schema.core.ref import check_name

    history = model_history(
        name,
        read_history(load(session.reader(remote), check_name(name)), last),
        metric,
        lambda item: format_name in (None, item.format) and precision in (None, item.precision),
    )
    rows = []
    for row in history.versions:
        artifact = row.artifact
        words = [word for word in (row.status, *row.channels) if word not in ("", "refused")]
        facts: tuple[object, ...] = (None,) * 4
        if artifact:
            facts = (artifact.path, size(artifact.size), standing(artifact), artifact.latency)
        interval = " to ".join(map(number, row.interval or ()))
        remark = None if row.value is None or history.is_charted(row) else "other suite"
        rows.append((row.version, (row.time or "")[:10], words, *facts, number(row.value), interval, remark))
    title = f"{name}: {history.metric or 'nothing was measured'}"
    session.show(history, printable(title), "", table(COLUMNS, rows))
