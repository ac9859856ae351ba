"""A recipe with everything that it needs found, hashed and checked, and nothing heavy loaded."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from onnxreg.converters.engine import steps
from onnxreg.converters.engine.profile_contract import ProfilePromises
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.source.toolchain import package_versions, tools
from onnxreg.converters.tasks import task_catalog
from onnxreg.converters.tasks.code.consent import Consent
from onnxreg.converters.tasks.task import LocatedSource, Task
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.inputs.recipe_file import LABELLED, AskedOutput, RecipeFile
from onnxreg.schema.manifest.manifest import Source


@dataclass(frozen=True)
class ExportPlan:
    """What will be run. `name` is that of the model; `outputs` what is published, in order; `directory` the recipe's;
    `start` the source as it was named.

    `document` and `package` are those of another package's profile.
    """

    recipe: RecipeFile
    name: str
    task: Task
    found: LocatedSource
    nodes: dict[str, steps.StepNode]
    outputs: list[AskedOutput]
    contract: ProfilePromises
    directory: Path
    start: str
    document: Path | None = None
    package: str | None = None

    def recorded_as(self, origin: Source | None) -> "ExportPlan":
        """The same, its source recorded under another id and revision; the digest stays that of its files."""
        if origin is None:
            return self
        told = origin.model_copy(update={"digest": self.found.digest})
        return replace(self, found=replace(self.found, origin=told))

    def without_code(self) -> "ExportPlan":
        """The same, as versions recorded it before recipes named the function that made the module."""
        return replace(self, found=replace(self.found, code=None))

    def key(self) -> dict[str, Any]:
        """Everything that shapes the draft: equal keys, equal drafts."""
        return {
            "recipe": self.asked(),
            "name": self.name,
            "subject": self.subject_key(),
            "passes": {name: pass_key(node) for name, node in self.nodes.items()},
            "contract": dict(self.contract.key()),
            "packages": self.packages(),
            "tools": tools(),
        }

    def packages(self) -> dict[str, str | None]:
        """The packages of others that bring a pass, the task, the profile or code of the source, with their versions."""
        parts = [type(self.task), type(self.contract), *(node.kind for node in self.nodes.values())]
        brought = {name: found for part in parts for name, found in _packages(part).items()}
        own = [] if self.package is None else [self.package]
        return {**brought, **package_versions([*self.found.packages, *own])}

    @cached_property
    def options(self) -> dict[str, Any]:
        """The task's options as they are recorded; what they name is hashed once, so all keys agree."""
        return self.task.record(self.found)

    def check_unchanged(self) -> None:
        """InputError where the source, or what the options name, is no longer what was found; a hub's never changes."""
        if self.found.files is None:
            return
        again = self.task.find(self.start)
        found = replace(self.found, digest=again.digest, described=again.described)
        if replace(self, found=found).subject_key() != self.subject_key():
            raise InputError(
                "the source was changed while it was read", "export again once nothing writes to it"
            )

    def reads(self) -> list[Path] | None:
        """Every file that shapes the order, and each directory whose names do; None where the task does not say."""
        if self.found.files is None:
            return None
        named = [step.data for step in self.recipe.steps if step.data is not None]
        named += [] if self.recipe.source is None else [self.recipe.source]
        beside = [self.directory / name for name in named]
        inside = [path for each in beside if each.is_dir() for path in each.glob("*.npz")]
        own = [] if self.document is None else [self.document]
        return [*self.found.files, *beside, *inside, *own]

    def subject_key(self) -> dict[str, Any]:
        """Everything that shapes the subject."""
        task = {
            "id": self.task.id,
            "version": self.task.version,
            "options": self.options,
        }
        trusted = self.task.trust_remote_code
        origin = None if self.found.origin is None else self.found.origin.to_json()
        about = {"source": str(self.found.digest), "origin": origin, "name": self.name, "trusted": trusted}
        described = None if self.found.described is None else str(self.found.described)
        packages = package_versions(self.found.packages)
        return {"task": task, **about, "described": described, "packages": packages, "tools": tools()}

    def asked(self) -> dict[str, Any]:
        """The recipe as it is recorded: without what says where things lay, calibration data by digest."""
        value = self.recipe.to_json()
        value.pop("source", None)
        value.pop("name", None)
        value["options"] = dict(self.options)
        for step, node in zip(value["steps"], self.recipe.steps, strict=True):
            data = self.nodes[node.name].data
            if data is not None:
                step["data"] = str(samples.digest(data))
        return value


def place_order(
    recipe: RecipeFile,
    source: str | None = None,
    name: str | None = None,
    directory: Path = Path(),
    trust_remote_code: bool = False,
    contract: ProfilePromises | None = None,
    what: str = "",
    allow_code: Iterable[str] | Consent = (),
) -> ExportPlan:
    """Check a recipe, and find its source.

    Raises InputError for a recipe that cannot be run, NotFoundError or RemoteError where the source cannot be had.

    Args:
        source: in place of the recipe's own.
        name: the model's name; the recipe's, or a hub id, where absent.
        directory: what the recipe's relative paths are relative to.
        what: how people call the recipe, where it has a name that they know.
        allow_code: the factories that may run: `module:function` of an installed one, `file.py:function` or `file.py` of any other.
    """
    consent = allow_code if isinstance(allow_code, Consent) else Consent.of(allow_code)
    with about(what):
        nodes = steps.nodes(recipe, directory)
        outputs = steps.outputs(recipe, nodes)
        task = task_catalog.find(recipe.task)(directory, trust_remote_code, consent, **recipe.options)
    start = start_of(recipe, source, directory)
    _check_metrics(recipe, task)
    found = task.find(start)
    called = name or recipe.name or found.name
    if called is None:
        raise InputError("what lies on this machine has no model name of its own", "pass --name NAME")
    promised = contract or ProfilePromises()
    return ExportPlan(recipe, check_name(called), task, found, nodes, outputs, promised, directory, start)


def _check_metrics(recipe: RecipeFile, task: Task) -> None:
    """What nothing can be measured on is told before hours of work."""
    asked = next((check.metric for check in recipe.checks if check.metric in LABELLED), None)
    if asked is not None and not task.has_dataset:
        raise InputError(
            f"a check of {asked} needs a dataset with labels", "name one: options: {dataset: FILE.npz}"
        )


def start_of(recipe: RecipeFile, source: str | None, directory: Path) -> str:
    """The source as it is named by a person, else by the recipe; InputError where neither does."""
    start = source or (None if recipe.source is None else _beside(recipe.source, directory))
    if start is None:
        raise InputError(
            "there is nothing to export", "name a source: reg export SOURCE, or `source` in the recipe"
        )
    return start


def _beside(source: str, directory: Path) -> str:
    """A source that a recipe names lies beside the recipe, where it lies anywhere."""
    path = directory / source
    return str(path) if path.exists() else source


def pass_key(node: steps.StepNode) -> dict[str, Any]:
    """A pass with its version and parameters, all defaults filled in; of another package, with its version."""
    found: dict[str, Any] = {"pass": node.kind.id, "version": node.kind.version}
    found["params"] = node.kind.read(node.asked.params).model_dump(mode="json")
    if node.data is not None:
        found["data"] = str(samples.digest(node.data))
    if packages := _packages(node.kind):
        found["package"] = packages
    return found


def _packages(part: type) -> dict[str, str | None]:
    """The packages that a class of another project is in, with their versions; of ours, none."""
    top = part.__module__.partition(".")[0]
    return {} if top == "onnxreg" else package_versions(sorted(packages_distributions().get(top, ())))
