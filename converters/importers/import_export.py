"""Taking back a directory that `reg pull --output` or `reg export --output` wrote.

In a run directory these write into `exports/`, without that beginning of the paths: so `exports/model.onnx` of the manifest
is also looked for as `model.onnx`.
"""

from collections.abc import Iterable
from pathlib import Path

from onnxreg.converters.importers.draft_json import Difference
from onnxreg.converters.importers.import_files import Intake
from onnxreg.converters.importers.judge_files import check_format, read_model
from onnxreg.converters.importers.openmed.artifacts import files_in, named_file
from onnxreg.converters.onnx.facts import GraphFacts
from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_RECORD_BYTES
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest
from onnxreg.schema.manifest.parts import TensorSpec
from onnxreg.schema.manifest.vocabulary import FILENAME, FORMAT

EXPORTS = "exports/"
MINE = f"to make a version of your own of its files: reg add FILE... --name NAME, without {FILENAME}"


def is_written(directory: Path) -> bool:
    """Return True if the manifest of a directory says that it has format version 2. Raise InputError if it is not JSON."""
    path = directory / FILENAME
    if not path.is_file():
        return False
    if path.stat().st_size > MAX_RECORD_BYTES:
        raise InputError(f"{FILENAME} is larger than a manifest may be: {MAX_RECORD_BYTES} bytes")
    value = canonical.decode(path.read_bytes(), FILENAME)
    return isinstance(value, dict) and value.get("format") == FORMAT and value.get("format_version") == 2


def import_written(directory: Path, workspace: Path, *, name: str) -> tuple[Draft, list[Difference]]:
    """The version in a directory, under the directory's own manifest: the same files give the same digest.

    Each file must have the digest that the manifest states (`Draft.manifest` compares them), and each graph is judged as
    `reg add` judges it. Files that the manifest does not name are left out and reported. A manifest with other spaces,
    as another tool writes it, is the same manifest.

    Raises InputError for a manifest of another name, one with an edit that contradicts the rest, a missing file, and a manifest that says
    something else than the graphs do.
    """
    check_name(name)
    written = (directory / FILENAME).read_bytes()
    data = canonical.encode(canonical.decode(written, FILENAME))
    try:
        manifest = Manifest.decode(data)
    except InputError as error:
        edited = "was edited by another tool" if written != data else "is not valid"
        raise InputError(f"{FILENAME} {edited}: {error.message}", MINE) from error
    if manifest.name != name:
        raise InputError(f"{FILENAME} is of {manifest.name}, not {name}", f"use --name {manifest.name}")
    intake = Intake(workspace, name)
    intake.look_below(directory)
    named = {
        entry.path: named_file(directory, _local(directory, entry.path), entry.role)
        for entry in manifest.all_files()
    }
    for artifact in manifest.artifacts:
        _judge(directory, artifact)
    for path, local in named.items():
        intake.take(directory / local, path)
    if intake.scrubbed:
        raise InputError(f"{intake.scrubbed[0]} names a path of a machine, which is not published", MINE)
    artifacts = tuple(
        DraftArtifact(item.format, item.precision, item.path, _files(item.files))
        for item in manifest.artifacts
    )
    draft = Draft(name, workspace, artifacts, _files(manifest.files), {}, intake.file_states, data)
    left_out = [path for path in files_in(directory, directory) if path not in {FILENAME, *named.values()}]
    return draft, [Difference(path, None, "not named by the manifest; left out") for path in left_out]


def _local(directory: Path, path: str) -> str:
    """The path in the directory of a file that the manifest names."""
    short = path.removeprefix(EXPORTS)
    return short if (directory / short).exists() and not (directory / path).exists() else path


def _files(entries: Iterable[FileEntry]) -> tuple[DraftFile, ...]:
    return tuple(DraftFile(entry.role, entry.path) for entry in entries)


def _judge(directory: Path, artifact: Artifact) -> None:
    """InputError for a graph that `reg add` would refuse, or of which the manifest says something else."""
    if not artifact.path.endswith((".onnx", ".ort")):
        return
    configs = (file.path for file in artifact.files if file.role == "operator-config")
    config = next((directory / _local(directory, path) for path in configs), None)
    facts = read_model(directory / _local(directory, artifact.path), config)
    check_format(artifact.format, facts, artifact.path, MINE)
    for field, stated, read in _comparisons(artifact, facts):
        if stated != read:
            raise InputError(f"{FILENAME} states other {field} of {artifact.path} than the file has", MINE)


def _comparisons(artifact: Artifact, facts: GraphFacts) -> list[tuple[str, object, object]]:
    metadata = artifact.metadata
    return [
        ("inputs", _tensors(metadata.inputs), _tensors(facts.inputs)),
        ("outputs", _tensors(metadata.outputs), _tensors(facts.outputs)),
        ("operators", set(metadata.operators), set(facts.operator_names)),
    ]


def _tensors(specs: Iterable[TensorSpec]) -> list[tuple[str, str]]:
    return [(spec.name, spec.dtype) for spec in specs]
