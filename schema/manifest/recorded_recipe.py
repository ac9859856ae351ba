"""The recorded recipe of a version: a tree of passes with parameters, and the tools that shape bytes."""

from typing import Annotated

from pydantic import Field

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Count, Document, FrozenDict, Items, JsonObject, Table, Text


class Step(Document):
    """One pass that was applied, with its parameters and its result.

    `input` names the earlier step whose graph it read (absent: the source). `skipped` has the reason if the
    pass could not run and the profile allows that; the reason names a dependency, never data.
    """

    name: Text
    pass_: Annotated[Text, Field(alias="pass")]
    version: Count
    params: JsonObject
    input: Text | None = None
    result: JsonObject = Field(default_factory=FrozenDict)
    skipped: Text | None = None


class Code(Document):
    """The function that made the model, `module:function`, which `--allow-code` allowed.

    A function of a Python file is bound by `digest`: that of the file, or of all Python files of its package
    as a directory. An installed function is bound by its `distribution` and that distribution's `version`;
    `python` means Python's own.
    """

    name: Text
    digest: Digest | None = None
    distribution: Text | None = None
    version: Text | None = None


class Recipe(Document):
    """A profile with all its parameters, as it was run.

    `tools` maps a tool's name to its version, for the tools (and, as `isa`, the instruction-set class of the
    machine) that shape bytes: the promise of a rebuild holds for equal tools. `trust_remote_code` is for the
    code of a transformers checkpoint, `code` for the function that made the module.
    """

    profile: Text
    profile_version: Count
    steps: Items[Step]
    tools: Table[str]
    parameters: JsonObject = Field(default_factory=FrozenDict)
    trust_remote_code: bool = False
    code: Code | None = None
