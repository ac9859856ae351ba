"""The subject of an order, loaded by its task, or as much of it as the cache keeps."""

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

NOTE, ARRAYS, FILES = "subject.json", "sample.npz", "files"


def load(order: ExportPlan, directory: Path, cache: StepCache | None) -> ExportSubject:
    """The subject, its companions below `directory / "files"`. Out of the cache it has no `start` and nothing loaded.

    Raises what the task's `load` raises, and InputError where the source was changed meanwhile.
    """
    directory.mkdir()
    key = order.subject_key()
    if cache is not None and cache.find("subjects", key, directory):
        (directory / FILES).mkdir(exist_ok=True)
        subject = _read(directory)
        return replace(subject, labelled=order.task.dataset(order.found, subject.got))
    (directory / FILES).mkdir()
    subject = order.task.load(order.found, order.name, directory / FILES)
    order.check_unchanged()
    _refuse_no_numbers(subject.sample)
    if cache is not None:
        _write(subject, directory)
        cache.keep("subjects", key, directory)
    return subject


def _refuse_no_numbers(sample: Sample) -> None:
    """NaN compares with nothing, so a source that gives it cannot be exported."""
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
    held = io.BytesIO()
    np.savez(held, allow_pickle=False, **arrays)
    (directory / ARRAYS).write_bytes(held.getvalue())
    note = {
        "origin": subject.origin.to_json(),
        "per_token": sorted(sample.per_token),
        "golden": list(sample.golden),
        "companions": [[file.role, file.path] for file in subject.companions],
        "fields": dict(subject.fields),
        "got": dict(subject.got),
    }
    (directory / NOTE).write_bytes(canonical.encode(note, NOTE))


def _read(directory: Path) -> ExportSubject:
    import numpy as np

    note = canonical.decode((directory / NOTE).read_bytes(), NOTE)
    with np.load(directory / ARRAYS, allow_pickle=False) as arrays:
        runs = _runs({name: arrays[name] for name in arrays.files})
    golden = dict(zip(note["golden"], runs.get("golden", ()), strict=True))
    sample = Sample(runs.get("feeds", ()), runs.get("expected", ()), frozenset(note["per_token"]), golden)
    companions = tuple(DraftFile(role, path) for role, path in note["companions"])
    origin = Source.from_json(note["origin"])
    return ExportSubject(origin, sample, None, companions, note["fields"], note["got"])


def _runs(arrays: Mapping[str, Any]) -> dict[str, Sequence[dict[str, Any]]]:
    """Arrays called `<part>/<run>/<name>` as `{part: [{name: array}]}`."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for key, array in arrays.items():
        part, index, name = key.split("/", 2)
        found.setdefault(part, {}).setdefault(int(index), {})[name] = array
    return {part: [runs[index] for index in sorted(runs)] for part, runs in found.items()}
