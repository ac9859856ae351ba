"""`reg log`, `history`: the events of a model, and how its versions developed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxreg.cli import output
from onnxreg.cli.context import Session
from onnxreg.cli.options import MAX_AGE, NAME, OFFLINE, PRECISION, READ_REMOTE, option
from onnxreg.cli.output import printable, size, table
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.log.events import Attest, OptionalEvent, PolicyEvent, Publish
from onnxreg.schema.log.logline import LogLine

if TYPE_CHECKING:
    from onnxreg.registry.trust.signatures import SignatureVerdict
    from onnxreg.schema.compare.version_history import HistoryRow, ModelHistory
    from onnxreg.schema.manifest.manifest import Artifact

EXAMPLES = (
    "reg log acme/pii-small",
    "reg log acme/pii-small --remote origin --offline",
    "reg history acme/pii-small",
    "reg history acme/pii-small --metric DATE --precision int8",
)


def log(
    session: Session,
    name: str = NAME,
    remote: str | None = READ_REMOTE,
    offline: bool = OFFLINE,
    max_age: str | None = MAX_AGE,
) -> None:
    """Show every event of a model, in the order of the log, and verify the chain. `.policy` names the log of policies.

    TIME says when a line came into this registry. WHAT also says when one that was pushed or pulled was
    written, and where. Times are as claimed; nothing is ordered by them.

    Actors are shown as claimed; SIGNED BY names the key that signed the line, by its name in your trust file.
    The last signed line vouches for all lines before it.

    With --json: {name, registry, head, lines: [{seq, prev, digest, event, via?: {registry, seq, head, time?},
    signed: {status, keyid, key}}]}; status is trusted, unsigned, unknown, revoked, foreign or invalid (docs/signing.md).
    """
    from onnxreg.registry.gates.statements import words
    from onnxreg.registry.log.lookup import read_lines
    from onnxreg.registry.trust.signatures import SignatureJudge
    from onnxreg.registry.trust.trust_file import load_trust

    reader = session.limited(max_age).reader(remote, offline)
    log = read_lines(reader, name)
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
        table(
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


HISTORY_COLUMNS = ("VERSION", "DATE", "STATE", "ARTIFACT", "SIZE", "VERDICT", "VALUE", "")
LIMIT = 20
"""Versions that are shown, unless `--last` says otherwise."""
PLOT_COLUMNS = 12
"""Columns of a terminal that the chart has."""


def history(
    session: Session,
    name: str = NAME,
    metric: str | None = option(
        "The figure: the name of a check, or its end, such as a label; default: the loss of recall."
    ),
    format_name: str | None = option("Only artifacts of this format.", "--format"),
    precision: str | None = PRECISION,
    last: int = option("The number of versions.", default=LIMIT, min=1, max=1000),
    remote: str | None = READ_REMOTE,
) -> None:
    """Show how size, a figure and the verdict moved from version to version, newest first.

    Each line is about the smallest artifact of a version that has the figure. The chart shows the value (o) and
    its 95 % interval (-). Figures of another suite than the newest are not charted.

    With --json: {name, metric, versions: [{version, manifest, time, actor, status, channels, artifact: {path,
    format, precision, size, state, figures}, value, interval, suite, verdict, artifacts: [the same]}]}; artifact
    is null if the manifest was taken down, and value if the artifact lacks the figure.
    """
    from onnxreg.registry.log.lookup import read_history
    from onnxreg.schema.compare.version_history import model_history
    from onnxreg.schema.core.ref import check_name

    records = read_history(session.reader(remote), check_name(name), last)

    def is_chosen(artifact: "Artifact") -> bool:
        return format_name in (None, artifact.format) and precision in (None, artifact.precision)

    history = model_history(name, records, metric, is_chosen)
    metric = history.metric or "nothing was measured"
    rows = [(*_cells(row), chart) for row, chart in zip(history.versions, _charts(history), strict=True)]
    session.show(history.to_json(), printable(f"{name}: {metric}"), "", table(HISTORY_COLUMNS, rows))


def _cells(row: "HistoryRow") -> tuple[str, ...]:
    artifact = row.artifact
    return (
        row.version,
        (row.time or "")[:10],
        ", ".join(word for word in (row.status, *row.channels) if word not in ("", "refused")),
        artifact.path if artifact else "",
        size(artifact.size) if artifact else "",
        artifact.state if artifact else "",
        output.number(row.value),
    )


def _charts(history: "ModelHistory") -> list[str]:
    """A line for each row: `o` for the value between the least and the largest, `-` for its interval."""
    numbers = history.scale
    if not numbers or numbers[0] == numbers[1]:
        return ["" for _ in history.versions]
    return [_chart(row, numbers) if history.is_charted(row) else _why_not(row) for row in history.versions]


def _why_not(row: "HistoryRow") -> str:
    return "" if row.value is None else "other suite"


def _chart(row: "HistoryRow", scale: tuple[float, float]) -> str:
    low, high = scale

    def column(number: float) -> int:
        return int((number - low) / (high - low) * (PLOT_COLUMNS - 1) + 0.5)

    letters = [" "] * PLOT_COLUMNS
    if row.interval is not None:
        start, end = map(column, row.interval)
        letters[start : end + 1] = "-" * (end + 1 - start)
    if row.value is not None:
        letters[column(row.value)] = "o"
    return "".join(letters).rstrip()
