"""Progress that a test looks at."""

from collections.abc import Callable

from onnxreg.schema.core.units import Progress


class RecordedSteps(Progress):
    """Keeps the labels of the steps; `check` gets each of them first."""

    def __init__(self, check: Callable[[str], None] = lambda label: None) -> None:
        self.labels: list[str] = []
        self._check = check

    def step(self, label: str) -> None:
        self._check(label)
        self.labels.append(label)
