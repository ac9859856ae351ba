"""What a built-in profile promises beyond its recipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.facts import GraphFacts
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.recorded_recipe import Step


@dataclass(frozen=True)
class ProfileOutput:
    """A graph to publish: its path in the workspace, its facts, and the steps that made it, its own last."""

    path: str
    files: tuple[str, ...]
    facts: GraphFacts
    steps: tuple[Step, ...]


class ProfilePromises:
    """Promises nothing. A profile with promises is a subclass, found by the recipe's `profile`.

    `keeps_source`: whether `finish` needs what the task loaded, which is given free before where not.
    """

    keeps_source = False

    @property
    def finishing(self) -> str | None:
        """What `finish` does, in a few words, where it takes a while."""
        return None

    def key(self) -> Mapping[str, Any]:
        """What beside the recipe and the source shapes the draft, such as the digest of an evaluation suite."""
        return {}

    def check(self, output: ProfileOutput, subject: ExportSubject) -> None:
        """Raise ConversionError, naming the file, where a graph breaks the contract."""

    def fields(self, output: ProfileOutput) -> Mapping[str, Any]:
        """Further keys of `manifest.Artifact` in their JSON form, laid over what was read from the graph."""
        return {}

    def finish(self, draft: Draft, subject: ExportSubject, workspace: Path) -> Draft:
        """The last word on a draft."""
        return draft
