"""The subject of a plan, loaded by its task, or as much of it as the cache keeps."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.measure import counting
from onnxreg.converters.engine.plan import ExportPlan
from onnxreg.converters.tasks.task import ExportSubject, Sample
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import ConversionError
from onnxreg.schema.manifest.draft import DraftFile
from onnxreg.schema.manifest.manifest import Source

NOTE_FILE, ARRAYS_FILE, FILES_DIRECTORY = "subject.json", "sample.npz", "files"


def load(plan: ExportPlan, directory: Path, cache: StepCache | None) -> ExportSubject:
    """Load the subject, its companions below `directory / "files"`. From the cache it has no `start` and
    nothing loaded.

    Raises what the task's `load` raises, and InputError if the source was changed meanwhile.
    """
    directory.mkdir()
    key = plan.subject_key()
    if cache is not None and cache.find("subjects", key, directory):
        (directory / FILES_DIRECTORY).mkdir(exist_ok=True)
        subject = _read(directory)
        return replace(subject, labelled=plan.task.dataset(plan.source, subject.resolved_options))
    (directory / FILES_DIRECTORY).mkdir()
    subject = plan.task.load(plan.source, plan.name, directory / FILES_DIRECTORY)
    plan.check_unchanged()
    _refuse_no_numbers(subject.sample)
    if cache is not None:
        _write(subject, directory)
        cache.keep("subjects", key, directory)
    return subject


def _refuse_no_numbers(sample: Sample) -> None:
    """Raise ConversionError for NaN or infinity in the source's outputs: nothing can be compared with them."""
    import numpy as np

    for outputs in counting(sample.expected, sample):
        for name, array in outputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ConversionError(
                    f"the source itself gives NaN or infinity in {name}", "check its weights"
                )


def _write(subject: ExportSubject, directory: Path) -> None:
    import numpy as np

    sample = subject.sample
    parts = {"feeds": sample.feeds, "expected": sample.expected, "golden": list(sample.golden.values())}
    arrays = {
        f"{part}/{index}/{name}": array
        for part, runs in parts.items()
        for index, run in enumerate(runs)
        for name, array in run.items()
    }
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    (directory / ARRAYS_FILE).write_bytes(buffer.getvalue())
    note = {
        "origin": subject.origin.to_json(),
        "per_token": sorted(sample.per_token),
        "golden": list(sample.golden),
        "companions": [[file.role, file.path] for file in subject.companions],
        "fields": dict(subject.fields),
        "got": dict(subject.resolved_options),
    }
    (directory / NOTE_FILE).write_bytes(canonical.encode(note, NOTE_FILE))


def _read(directory: Path) -> ExportSubject:
    import numpy as np

    note = canonical.decode((directory / NOTE_FILE).read_bytes(), NOTE_FILE)
    with np.load(directory / ARRAYS_FILE, allow_pickle=False) as arrays:
        runs = _runs({name: arrays[name] for name in arrays.files})
    golden = dict(zip(note["golden"], runs.get("golden", ()), strict=True))
    sample = Sample(runs.get("feeds", ()), runs.get("expected", ()), frozenset(note["per_token"]), golden)
    companions = tuple(DraftFile(role, path) for role, path in note["companions"])
    origin = Source.from_json(note["origin"])
    return ExportSubject(origin, sample, None, companions, note["fields"], note["got"])


def _runs(arrays: Mapping[str, Any]) -> dict[str, Sequence[dict[str, Any]]]:
    """Group arrays named `<part>/<run>/<name>` as `{part: [{name: array}]}`."""
    parts: dict[str, dict[int, dict[str, Any]]] = {}
    for key, array in arrays.items():
        part, index, name = key.split("/", 2)
        parts.setdefault(part, {}).setdefault(int(index), {})[name] = array
    return {part: [runs[index] for index in sorted(runs)] for part, runs in parts.items()}
