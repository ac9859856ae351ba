"""Promises of a profile beyond its recipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.converters.onnx.facts import GraphFacts
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.parts import Step

if TYPE_CHECKING:
    from onnxreg.converters.evaluation.judgement import JudgedArtifact


@dataclass(frozen=True)
class ProfileOutput:
    """A graph to publish: its path in the workspace, its facts, and the steps that made it, its own last."""

    path: str
    files: tuple[str, ...]
    facts: GraphFacts
    steps: tuple[Step, ...]


class ProfilePromises:
    """The promises of a profile: by default none. A subclass makes some; the recipe's `profile` finds it.

    `keeps_source` is True if `finish` needs the loaded source; else its memory is freed before.
    """

    keeps_source = False

    def key(self) -> Mapping[str, Any]:
        """Return further facts that shape the draft."""
        return {}

    def check(self, output: ProfileOutput, subject: ExportSubject) -> None:
        """Raise ConversionError, naming the file, if a graph breaks a promise."""

    def fields(self, output: ProfileOutput) -> Mapping[str, Any]:
        """Return further keys of `manifest.Artifact` in JSON form, which override those read from the graph."""
        return {}

    def finish(
        self, draft: Draft, subject: ExportSubject, workspace: Path, judged: "Mapping[str, JudgedArtifact]"
    ) -> Draft:
        """Complete a draft. `judged` are the artifacts that an evaluation judged, by path."""
        return draft
