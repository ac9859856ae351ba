"""What was done to make a version: a tree of passes with their parameters, and the tools that shape bytes."""

from typing import Annotated

from pydantic import Field

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Count, Document, Items, JsonObject, Table, Text
from onnxreg.schema.core.frozen import FrozenDict


class Step(Document):
    """One pass that was applied, what was asked of it and what came out.

    `input` names the earlier step whose graph it read (absent: the source). `skipped` is set, with the reason,
    where the pass could not run and the profile allows that; the reason names a dependency, never data.
    """

    name: Text
    pass_: Annotated[Text, Field(alias="pass")]
    version: Count
    params: JsonObject
    input: Text | None = None
    result: JsonObject = Field(default_factory=FrozenDict)
    skipped: Text | None = None


class Code(Document):
    """The function that made the model, `module:function`: what `--allow-code` was given for.

    A function of a Python file is bound by `digest`: that of the file, or of all Python files of its package as a directory.
    One that is installed is bound by its `distribution` and the `version` of that; Python's own are of `python`.
    """

    name: Text
    digest: Digest | None = None
    distribution: Text | None = None
    version: Text | None = None


class Recipe(Document):
    """A profile with its parameters filled in, as it was run.

    `tools` maps a tool's name to its version, for the tools (and, as `isa`, the instruction-set class of the
    machine) that shape bytes: the promise of a rebuild holds for equal tools. `trust_remote_code` is for code that a
    checkpoint of transformers brought, `code` for the function that made the module.
    """

    profile: Text
    profile_version: Count
    steps: Items[Step]
    tools: Table[str]
    parameters: JsonObject = Field(default_factory=FrozenDict)
    trust_remote_code: bool = False
    code: Code | None = None
