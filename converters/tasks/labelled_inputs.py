"""Inputs with known classes, for measuring accuracy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.passes.tools import samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError

LABELS = "labels"
"""Name of the array with the classes of the first output; those of another output are in `labels_<output>`."""

Run = Callable[[Feed], Mapping[str, Any]]
"""Function from arrays by input name to arrays by output name."""


@dataclass(frozen=True)
class LabelledInputs:
    """`inputs` by name and `classes` by output name, int64 `[rows]`: the position of the largest value that
    is right.

    `digest` is over all of it. `accuracy` of the source itself is that of its own outputs, by output name.
    """

    inputs: Feed
    classes: Mapping[str, Any]
    digest: Digest

    @property
    def rows(self) -> int:
        return len(next(iter(self.inputs.values())))

    def batches(self, size: int) -> Iterator[Feed]:
        for start in range(0, self.rows, size):
            yield {name: array[start : start + size] for name, array in self.inputs.items()}

    def accuracy(self, run: Run, size: int) -> dict[str, float]:
        """Return the share of rows with the right class, by output name. InputError if an output is not one
        vector per row.

        Args:
            size: rows in a batch.
        """
        import numpy as np

        results = [run(feed) for feed in self.batches(size)]
        accuracies = {}
        for name, classes in self.classes.items():
            values = np.concatenate([result[name] for result in results])
            if values.ndim != 2 or len(values) != len(classes):
                raise InputError(f"{LABELS} are for one vector a row; {name} has the shape {values.shape}")
            if classes.max() >= values.shape[1]:
                raise InputError(
                    f"the dataset has the class {classes.max()}, the output {name} has {values.shape[1]} values"
                )
            accuracies[name] = float((values.argmax(axis=1) == classes).mean())
        return accuracies


def read(path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> LabelledInputs:
    """Read a `.npz` file: an array for each input, and `labels` (of the first output), `labels_<output>`.

    Raises InputError if it is not such a file, or its arrays do not fit each other.
    """
    import numpy as np

    rows = samples.read(path)
    arrays = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    label_names = {outputs[0]: LABELS, **{name: f"{LABELS}_{name}" for name in outputs[1:]}}
    classes = {name: arrays.pop(key) for name, key in label_names.items() if key in arrays}
    if not classes or set(arrays) != set(inputs):
        contents = ", ".join(sorted({*arrays, *(label_names[name] for name in classes)}))
        raise InputError(
            f"{path.name} holds {contents}; a dataset has {', '.join(inputs)} and {LABELS}",
            "np.savez(FILE, " + ", ".join(f"{name}=..." for name in (*inputs, LABELS)) + ")",
        )
    for name, values in classes.items():
        if values.ndim != 1 or values.dtype.kind not in "iu" or values.min() < 0:
            raise InputError(f"{path.name}: {label_names[name]} must be one class, 0 or more, for each row")
    classes = {name: values.astype(np.int64) for name, values in classes.items()}
    arrays_and_classes = [{**arrays, **{label_names[name]: values for name, values in classes.items()}}]
    return LabelledInputs(arrays, classes, samples.digest(arrays_and_classes))
