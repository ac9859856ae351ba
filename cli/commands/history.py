"""`reg history`: the sizes, figures and verdicts of a model's versions."""

from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, NameArgument, Precision, RemoteOption
from onnxreg.cli.render import output

if TYPE_CHECKING:
    from onnxreg.schema.compare.version_history import HistoryRow, ModelHistory
    from onnxreg.schema.manifest.manifest import Artifact

EXAMPLES = (
    "reg history acme/pii-small",
    "reg history acme/pii-small --metric DATE --precision int8",
    "reg history acme/pii-small --remote origin --json",
)
HEADER = ("VERSION", "DATE", "STATE", "ARTIFACT", "SIZE", "VERDICT", "VALUE", "")
LIMIT = 20
"""Versions that are shown, unless `--last` says otherwise."""
PLOT_COLUMNS = 12
"""Columns of a terminal that the chart has."""


def command(
    session: Session,
    name: NameArgument,
    metric: Annotated[
        str | None,
        typer.Option(
            help="The figure: the name of a check, or its end, such as a label; default: the loss of recall."
        ),
    ] = None,
    format_name: Annotated[
        str | None, typer.Option("--format", help="Only artifacts of this format.")
    ] = None,
    precision: Precision = None,
    last: Annotated[int, typer.Option(min=1, max=1000, help="The number of versions.")] = LIMIT,
    remote: RemoteOption = None,
    as_json: Json = False,
) -> None:
    """Show how size, a figure and the verdict moved from version to version, newest first.

    Each line is about the smallest artifact of a version that has the figure. The chart shows the value (o)
    and its 95 % interval (-), if one was published. Figures of another suite than the newest are not
    charted, since they cannot be compared.

    With --json: {name, metric, versions: [{version, manifest, time, actor, status, channels, artifact: {path,
    format, precision, size, state, figures}, value, interval, suite, verdict, artifacts: [the same]}]}; artifact
    is null if the manifest was taken down, and value if the artifact lacks the figure.
    """
    from onnxreg.registry.read.versions import read_history
    from onnxreg.schema.compare.version_history import model_history
    from onnxreg.schema.core.ref import check_name

    records = read_history(session.reader(remote), check_name(name), last)

    def is_chosen(artifact: "Artifact") -> bool:
        return format_name in (None, artifact.format) and precision in (None, artifact.precision)

    history = model_history(name, records, metric, is_chosen)
    metric = history.metric or "nothing was measured"
    rows = [(*_cells(row), chart) for row, chart in zip(history.versions, _charts(history), strict=True)]
    session.show(history.to_json(), output.printable(f"{name}: {metric}"), "", output.table(HEADER, rows))


def _cells(row: "HistoryRow") -> tuple[str, ...]:
    artifact = row.artifact
    return (
        row.version,
        (row.time or "")[:10],
        ", ".join(word for word in (row.status, *row.channels) if word not in ("", "refused")),
        artifact.path if artifact else "",
        output.size(artifact.size) if artifact else "",
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
