"""`reg query`: find artifacts, in all models and versions, for which an expression is true."""

from itertools import islice
from pathlib import Path
from typing import Any

from onnxreg.cli.options import MAX_AGE, REMOTE, Session, argument, option
from onnxreg.cli.output import counted, size, standing, table
from onnxreg.cli.search_report import fail, read_catalog, tell_time
from onnxreg.registry.log.log import open_log
from onnxreg.registry.search import table_export
from onnxreg.schema.core.ref import is_name
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.fields import FIELDS

Row = dict[str, Any]
HEADER = ["NAME", "VERSION", "CHANNELS", "STATE", "ARTIFACT", "FORMAT", "PRECISION"]
HEADER += ["DOWNLOAD", "CERTIFICATION"]
EXAMPLES = (
    "reg query 'certified and size <= 30MB'",
    "reg query \"metric['sts/spearman'] >= 0.82\"",
    "reg query \"format in (onnx-int8, ort-android) and 'stable' in channels\" --limit 20",
    "reg query --export registry.parquet",
)


def command(
    session: Session,
    expression: str | None = argument("A condition on artifacts; see docs/query.md.", "[EXPR]"),
    names: str = argument("Only models that match this pattern.", "[NAME]", models=True, default="*"),
    limit: int | None = option("The maximum number of artifacts to show.", min=1),
    export: Path | None = option(
        "Write the artifacts to this file (.parquet, .jsonl or .csv), one row for each."
    ),
    remote: str | None = REMOTE,
    max_age: str | None = MAX_AGE,
) -> None:
    """Find artifacts in every version of every model, including yanked versions and pre-releases.

    docs/query.md has the fields and the language. Without an expression, all artifacts are shown. The answer about a
    remote comes from its catalog, if somebody publishes one (reg index publish); without one, each query reads every
    model.

    With --json: {models, more, matches: [{name, version, manifest, channels, newest, prerelease, yanked, pinned,
    latency, task, family, license, profile, artifact: {format, precision, path, digest, size, download_size, state,
    certified, opset, ort_format, providers, recall, min_recall, metric}}]}; models counts the models in matches; more
    says if --limit left matches out; snapshot is the time of the catalog that answered. With --export: {path, rows,
    snapshot?}.
    """
    session = session.with_max_age(max_age)
    question = None if expression is None else parse(expression)
    reader = session.reader(remote, checked=False)
    if is_name(names):
        open_log(reader, names)
    if export is not None:
        table_export.check_file(export)
    catalog = read_catalog(session, reader, names, True, session.max_age)
    damages, matches = catalog.damages(names, artifacts=True), catalog.query(question, names)
    time = tell_time(session, catalog.time, reader)
    if export is not None:
        count = table_export.write(export, map(_fields, islice(matches, limit)))
        written = f"{counted(count, 'artifact')} written to {export}"
        session.show({"path": export, "rows": count, **time}, written)
    else:
        hits = list(islice(matches, None if limit is None else limit + 1))
        shown, is_cut = hits[:limit], limit is not None and len(hits) > limit
        models = len({artifact.name for artifact in shown})
        session.show(
            {"models": models, "more": is_cut, "matches": list(map(_match, map(_fields, shown))), **time},
            table(HEADER, map(_row, shown)),
            ["", f"and more: these are the first {limit}"] if is_cut else None,
            None if hits or damages else "no artifact fits",
        )
    fail(damages, reader)


def _fields(artifact: Any) -> Row:
    return {name: getattr(artifact, name) for name in FIELDS}


def _match(row: Row) -> dict[str, Any]:
    index = list(row).index("format")
    pairs = list(row.items())
    return {**dict(pairs[:index]), "artifact": dict(pairs[index:])}


def _row(artifact: Any) -> tuple[object, ...]:
    status = [flag for flag in ("yanked", "pinned") if getattr(artifact, flag)]
    facts = (artifact.name, artifact.version, artifact.channels, status, artifact.path, artifact.format)
    return *facts, artifact.precision, size(artifact.download_size), standing(artifact)
