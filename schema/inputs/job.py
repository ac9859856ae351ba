"""One row of a job file: an export among many.

    - {source: ./pii-small, name: acme/pii-small, version: 1.0.0, profile: android, options: {max_seq_length: 256}}
    - {source: acme/minilm@main, name: acme/minilm, recipe: recipes/minilm.yaml}

A key that is not here is an error.
"""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from onnxreg.schema.core.document import FrozenDict, JsonObject, ModelName, Text
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.inputs.recipe_file import EvaluationRequest, ModelStatements


def _check_version(text: str) -> str:
    try:
        return str(Version.parse(text))
    except InputError as error:
        raise ValueError(error.message) from error


class JobRow(ModelStatements):
    """One export of `reg export --batch`. Paths start at the job file.

    Exactly one of `profile` (a built-in recipe), `recipe` (a file) and `task` decides what is made; `options`
    are those of the profile or the task; `license` and `description` go before the source's; `evaluation` is that of a recipe. The default version is the next patch, or 0.1.0; the default name is
    that of the recipe or of the hub.
    """

    source: Text | None = None
    name: ModelName | None = None
    version: Annotated[Text, AfterValidator(_check_version)] | None = None
    profile: Text | None = None
    recipe: Text | None = None
    task: Text | None = None
    options: JsonObject = Field(default_factory=FrozenDict)
    evaluation: EvaluationRequest | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        sources = [key for key in ("profile", "recipe", "task") if getattr(self, key) is not None]
        if len(sources) != 1:
            fault = (
                f"{' and '.join(sources)} contradict each other" if sources else "nothing says what to make"
            )
            raise ValueError(f"{fault}: give profile, recipe or task")
        if self.recipe is not None and self.options:
            raise ValueError("a recipe says its options itself")
        if self.source is None and self.recipe is None:
            raise ValueError("there is no source")
        return self

    @property
    def called(self) -> str:
        """The name of the job in messages."""
        name = self.name or self.source or self.recipe or ""
        return name if self.version is None else f"{name}:{self.version}"
