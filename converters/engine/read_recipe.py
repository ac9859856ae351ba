"""Read a recipe in YAML or JSON, or translate Olive's or Orchard's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.schema.core.bounds import MAX_TEXT_BYTES
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.files import read_given, read_yaml
from onnxreg.schema.inputs.recipe_file import RecipeFile

PROFILE_KEYS = ("profile", "profile_version")
RESERVED_KEYS = (*PROFILE_KEYS, "translation")
"""Keys that only the program writes."""
FAMILY_KEY = "family"
"""Key that only the document of a model family has."""


@dataclass(frozen=True)
class RecipeDocument:
    """A YAML or JSON file with a recipe or a family, read once."""

    path: Path
    value: Any

    @classmethod
    def read(cls, path: Path) -> "RecipeDocument":
        """Raises what `read_document` raises."""
        return cls(path, read_document(path, "recipe"))

    @property
    def is_family(self) -> bool:
        return isinstance(self.value, dict) and FAMILY_KEY in self.value

    def recipe(self) -> RecipeFile:
        """Make a recipe. InputError if it is not one, or has keys of the program."""
        reserved = RESERVED_KEYS if isinstance(self.value, dict) else ()
        if key := next((key for key in reserved if key in self.value), None):
            raise InputError(f"{self.path.name}: {key} is a reserved key", "remove it: the program writes it")
        return from_value(self.value, self.path.name)


def read_recipe(path: Path) -> RecipeFile:
    """Read the recipe in a file. Raises what `RecipeDocument.read` and `RecipeDocument.recipe` raise."""
    return RecipeDocument.read(path).recipe()


def read_document(path: Path, label: str = "recipe") -> Any:
    """Read the value of a YAML or JSON file. Nothing in it can run code, and no key may appear twice.

    Raises NotFoundError for a missing file, InputError if it is neither YAML nor JSON; `label` names the kind of
    document.
    """
    data = read_given(path, label, "check the path", MAX_TEXT_BYTES)
    try:
        return read_yaml(data.decode("utf-8"), path.name, "export")
    except UnicodeDecodeError as error:
        raise InputError(f"{path.name} is not text", f"a {label} is YAML or JSON, in UTF-8") from error


def from_value(value: Any, label: str) -> RecipeFile:
    """Make a recipe from a decoded document. One with `passes` is Olive's, one with `export` is Orchard's.

    InputError names the wrong key.
    """
    if not isinstance(value, dict):
        raise InputError(f"{label} is not a recipe: it has no keys")
    if "input_model" in value or "passes" in value or "export" in value:
        from onnxreg.converters.engine import foreign

        is_orchard = "export" in value and not {"input_model", "passes"} & value.keys()
        return (foreign.translate_orchard if is_orchard else foreign.translate_olive)(value, label)
    return RecipeFile.from_json(value, label)
