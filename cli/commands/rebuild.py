"""`reg rebuild`: run a version's recipe again, and compare the results with the published files."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.cli import apart
from onnxreg.cli.options import ALLOW_CODE, REF, Session, flag, option, pairs
from onnxreg.cli.output import counted, needs, shortened, table
from onnxreg.schema.core.errors import IntegrityError, NotFoundError

if TYPE_CHECKING:
    from onnxreg.registry.log.contents import Release
    from onnxreg.registry.registry import Registry
    from onnxreg.schema.compare.rebuild_outcome import RebuildComparison
    from onnxreg.schema.manifest.draft import Draft

EXAMPLES = (
    "reg rebuild acme/pii-small:1.2.0 --source ./checkpoint",
    "reg rebuild acme/mlp --source mlp.onnx --data int8=rows.npz",
    "reg rebuild acme/crops --source family.yaml",
    "reg rebuild acme/digits --source ./training --allow-code net.py:build",
)


def command(
    session: Session,
    ref: str = REF,
    source: str | None = option(
        "The directory of checkpoint and code, a file, or a family's document; default: the Hub, if the source came from the Hub."
    ),
    eval_suite: Path | None = option("The golden fixtures, if the version was evaluated."),
    data: list[str] | None = option(
        "Data that the recipe names by digest: the data of a step, or those of an option of the task (options.KEY).",
        metavar="NAME=PATH",
    ),
    trust_remote_code: bool = flag("Run the code of a transformers checkpoint, if the recipe did."),
    allow_code: list[str] | None = ALLOW_CODE,
) -> None:
    """Run the recipe of a version again and compare every file with the published file. Nothing is published.

    Code, checkpoint and suite must have the recorded digests, and code runs only with --allow-code. If the results
    differ, the exit status is 4. See docs/rebuild.md.

    With --json: {ref, manifest, matches, files: [{path, role, state, recorded, rebuilt, where}], tools, checks, fields};
    tools, checks and fields are lists of {name, recorded, rebuilt}.
    """
    with needs("export", "reg rebuild"):
        from onnxreg.converters.rebuild import Materials, rebuild

        registry = session.open()
        published = registry.get(ref)
        label = str(published.ref)
        with registry.scratch() as workspace, session.steps() as progress:
            store, allowed = registry.store, allow_code or ()
            named = pairs(data, "--data NAME=PATH", "such as --data int8=rows.npz")
            files = {key: Path(path) for key, path in named}
            materials = Materials(
                *(source, eval_suite, trust_remote_code, files, allowed),
                stored=lambda digest: store.blob_path(digest) if store.has({digest}) else None,
            )
            work = partial(rebuild, published.manifest, label, materials, workspace)
            draft = apart.run(work, progress)
            comparison = _compare(registry, published, draft)
    document = {"ref": label, "manifest": str(published.digest), **comparison.to_json()}
    session.show(document, _lines(label, comparison))
    if not comparison.matches:
        counts = ((comparison.bad_files, "file"), (comparison.checks, "check"), (comparison.fields, "field"))
        parts = ", ".join(counted(len(differences), noun) for differences, noun in counts if differences)
        tools = [
            f"{fact.name} {shortened(fact.recorded)} (here {shortened(fact.rebuilt)})"
            for fact in comparison.tools
        ]
        hint = "the tools are the same: this source and recipe do not give what was published"
        raise IntegrityError(
            f"{label} did not come out as recorded: {parts}",
            f"other tools made it: {', '.join(tools)}" if tools else hint,
        )


def _compare(registry: "Registry", published: "Release", draft: "Draft") -> "RebuildComparison":
    from onnxreg.registry.log.log import read_blob
    from onnxreg.registry.store.streams import measure
    from onnxreg.schema.compare.rebuild_outcome import compare

    recorded = {entry.path: entry.digest for entry in published.manifest.all_files()}

    def contents(path: str) -> tuple[bytes, bytes] | None:
        try:
            return read_blob(registry.store, recorded[path]), (draft.root / path).read_bytes()
        except NotFoundError:
            return None

    return compare(published.manifest, draft.manifest(measure(draft.root, draft.paths())), contents)


def _lines(label: str, comparison: "RebuildComparison") -> Iterator[str]:
    rows = [
        (file.path, file.role, file.state, file.recorded, file.rebuilt, file.where[:3])
        for file in comparison.files
    ]
    yield from table(("FILE", "ROLE", "STATE", "RECORDED", "REBUILT", "WHERE"), rows)
    kinds = {"TOOL": comparison.tools, "CHECK": comparison.checks, "FIELD": comparison.fields}
    for title, facts in kinds.items():
        cells = [(fact.name, shortened(fact.recorded), shortened(fact.rebuilt)) for fact in facts]
        yield from ["", *table((title, "RECORDED", "HERE"), cells)] if cells else []
    if comparison.matches:
        yield from ("", f"{label} was rebuilt: {counted(len(comparison.files), 'file')} as recorded")
