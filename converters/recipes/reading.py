"""Reading a recipe: YAML or JSON, ours, Olive's or Orchard's."""

import re
from pathlib import Path
from typing import Any

from onnxreg.converters.recipes import olive, orchard
from onnxreg.schema.errors import InputError, NotFoundError, missing_extra
from onnxreg.schema.recipe_file import RecipeFile

OURS_TO_SAY = ("profile", "profile_version")
"""Keys that the program writes, and nobody else."""
MAX_BYTES = 4 * 2**20
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")
"""Numbers such as 1e-4, which JSON and YAML 1.2 have and PyYAML takes for text."""


def read_recipe(path: Path) -> RecipeFile:
    """The recipe in a file. A document with `passes` is Olive's, one with `export` Orchard's.

    Raises NotFoundError where there is no such file, InputError where it is no recipe, or calls itself a profile's.
    """
    value = read_document(path)
    if claimed := next((key for key in OURS_TO_SAY if isinstance(value, dict) and key in value), None):
        raise InputError(
            f"{path.name}: {claimed} is not for a recipe to say", "take it out: the program itself writes it"
        )
    return from_value(value, path.name)


def from_value(value: Any, what: str) -> RecipeFile:
    """A recipe out of a decoded document, of Olive's or Orchard's too; InputError names the key that is wrong."""
    if not isinstance(value, dict):
        raise InputError(f"{what} is no recipe: it holds no keys")
    if olive.is_olive(value):
        value = olive.translate(value, what)
    elif "export" in value:
        return orchard.translate(value, what)
    elif "translation" in value:
        raise InputError(
            f"{what}: translation is not for a recipe to say", "take it out: the program itself writes it"
        )
    return RecipeFile.from_json(value, what)


def read_document(path: Path, what: str = "recipe") -> Any:
    """The value in a YAML or JSON file, which is YAML too. Nothing in it can run code or name one thing twice.

    Raises NotFoundError where there is no such file, InputError where it is neither; `what` is how people call it.
    """
    try:
        import yaml
    except ImportError as error:
        raise missing_extra("yaml", "export", f"reading a {what}") from error
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path.name} is too large for a {what}: more than {MAX_BYTES >> 20} MiB")
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no {what} at {path}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path.name} is no text") from error
    try:
        return yaml.load(text, Loader=_loader(yaml))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path.name} is neither YAML nor JSON: {reason}") from error


def _loader(yaml: Any) -> Any:
    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Safe; a key that stands twice is an error, and so are aliases, with which a line becomes gigabytes."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases are not allowed")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            if twice := next((key for key in keys if keys.count(key) > 1), None):
                raise yaml.YAMLError(f"the key {twice!r} stands twice")
            return super().construct_mapping(node, deep)

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))
    return Loader
