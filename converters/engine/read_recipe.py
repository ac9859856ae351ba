"""Reads a recipe in YAML or JSON, or translates Olive's or Orchard's document."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.schema.core.bounds import MAX_TEXT_BYTES
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.files import read_given, read_yaml
from onnxreg.schema.inputs.recipe_file import RecipeFile

PROFILE_KEYS = ("profile", "profile_version")
RESERVED_KEYS = (*PROFILE_KEYS, "translation")
"""Recipe keys that only onnxreg writes."""
FAMILY_KEY = "family"
"""Recipe key that only the document of a model family has."""


@dataclass(frozen=True)
class RecipeDocument:
    """The decoded content of a YAML or JSON file with a recipe or a family."""

    path: Path
    value: Any

    @classmethod
    def read(cls, path: Path) -> "RecipeDocument":
        """Read a file. Raises the errors of `read_document`."""
        return cls(path, read_document(path, "recipe"))

    @property
    def is_family(self) -> bool:
        return isinstance(self.value, dict) and FAMILY_KEY in self.value

    def recipe(self) -> RecipeFile:
        """Make a recipe. Raises InputError if the document is not a recipe, or has keys that only onnxreg writes."""
        reserved = RESERVED_KEYS if isinstance(self.value, dict) else ()
        if key := next((key for key in reserved if key in self.value), None):
            raise InputError(f"{self.path.name}: {key} is a reserved key", "remove it: the program writes it")
        return from_value(self.value, self.path.name)


def read_document(path: Path, label: str = "recipe") -> Any:
    """Read the value of a YAML or JSON file. The file cannot run code, and a repeated key is an error.

    Raises NotFoundError for a missing file, InputError if the file is neither YAML nor JSON; `label` names the kind of
    document.
    """
    return read_yaml(read_given(path, label, "check the path", MAX_TEXT_BYTES), path.name, "export")


def from_value(value: Any, label: str) -> RecipeFile:
    """Make a recipe from a decoded document. A document with `passes` is Olive's, one with `export` is Orchard's.

    Raises InputError, naming the wrong key.
    """
    if not isinstance(value, dict):
        raise InputError(f"{label} is not a recipe: it has no keys")
    if "input_model" in value or "passes" in value or "export" in value:
        from onnxreg.converters.engine import foreign

        is_orchard = "export" in value and not {"input_model", "passes"} & value.keys()
        return (foreign.translate_orchard if is_orchard else foreign.translate_olive)(value, label)
    return RecipeFile.from_json(value, label)
