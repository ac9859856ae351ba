"""Read a recipe in YAML or JSON, or translate Olive's or Orchard's."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.schema.core.bounds import MAX_TEXT_BYTES
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import InvalidValueError
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.given_file import read_given
from onnxreg.schema.core.text_files import read_yaml, strict_loader
from onnxreg.schema.inputs.recipe_file import RecipeFile

PROFILE_KEYS = ("profile", "profile_version")
"""Keys that only the program writes."""
RECIPE = "recipe"
FAMILY_KEY = "family"
"""Key that only the document of a model family has."""
COMMENT = re.compile(
    r'(?P<text>"(?:[^"\\\n]|\\.)*+"?)|'
    r'(?:(?<![^\s,{}\[\]"0-9])|(?<=true)|(?<=false)|(?<=null))(?://[^\n]*|/\*.*?(?:\*/|\Z))',
    re.DOTALL,
)
"""A quoted text, or a comment; one glued to an unquoted word, as in `http://host`, does not count."""
SPACE = r"(?>\s+|//[^\n]*|/\*.*?\*/)*+"
JSON = re.compile(rf'{SPACE}[{{\[]{SPACE}["}}\]{{]', re.DOTALL)
"""Beginning of a JSON document: comments, and an object with a key in quotes, or a list."""


@dataclass(frozen=True)
class RecipeDocument:
    """A YAML or JSON file, read once: its text, the digest of its bytes and its value."""

    path: Path
    text: str
    digest: Digest
    value: Any

    @classmethod
    def read(cls, path: Path, label: str = RECIPE) -> "RecipeDocument":
        """Read a file. Nothing in it can run code, and no key may appear twice.

        Raises NotFoundError for a missing file, InputError if it is neither YAML nor JSON; `label` names the
        kind of document.
        """
        hint = (
            "check the path; `reg builtin profiles android` prints one to begin with"
            if label == RECIPE
            else "check the path"
        )
        data = read_given(path, label, hint, MAX_TEXT_BYTES)
        try:
            text = without_comments(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"{path.name} is not text", f"a {label} is YAML or JSON, in UTF-8") from error
        return cls(path, text, Digest.of(data), read_yaml(text, path.name, "export"))

    @property
    def is_family(self) -> bool:
        return isinstance(self.value, dict) and FAMILY_KEY in self.value

    def recipe(self) -> RecipeFile:
        """Make a recipe. A document with `passes` is Olive's, one with `export` is Orchard's.

        Raises InputError if it is not a recipe, or has keys of a profile.
        """
        value, name = self.value, self.path.name
        if claimed := next((key for key in PROFILE_KEYS if isinstance(value, dict) and key in value), None):
            raise InputError(
                f"{name}: {claimed} is not for a recipe to say", "take it out: the program itself writes it"
            )
        with self.prefix_line():
            return from_value(value, name)

    @contextmanager
    def prefix_line(self) -> Iterator[None]:
        """Add the line in the file to an error of validation."""
        try:
            yield
        except InvalidValueError as error:
            line, name = line_of(self.text, error.location), self.path.name
            message = (
                error.message if line is None else error.message.replace(name, f"{name}, line {line},", 1)
            )
            raise InputError(message, error.hint) from error


def read_recipe(path: Path) -> RecipeFile:
    """Read the recipe in a file. Raises what `RecipeDocument.read` and `RecipeDocument.recipe` raise."""
    return RecipeDocument.read(path).recipe()


def read_document(path: Path, label: str = RECIPE) -> Any:
    """Read the value of a YAML or JSON file, as `RecipeDocument.read`."""
    return RecipeDocument.read(path, label).value


def without_comments(text: str) -> str:
    """Replace `//` and `/* */` comments of a JSON document by spaces; return every other text unchanged."""
    if not JSON.match(text):
        return text
    return COMMENT.sub(lambda match: match["text"] or re.sub(r"[^\n]", " ", match[0]), text)


def line_of(text: str, location: Sequence[int | str]) -> int | None:
    """Return the line, from 1, of a value in a YAML document, or of its nearest container; None if neither
    exists.
    """
    import yaml

    node, line = yaml.compose(text, Loader=strict_loader(yaml)), None
    for part in location:
        inside = {
            key.value if isinstance(node, yaml.MappingNode) else index: (key, value)
            for index, (key, value) in enumerate(_parts(node, yaml))
        }
        if part not in inside:
            break
        start, node = inside[part]
        line = start.start_mark.line + 1
    return line


def _parts(node: Any, yaml: Any) -> list[tuple[Any, Any]]:
    """Return keys and values of a mapping, each item twice of a list, nothing of a scalar."""
    if isinstance(node, yaml.MappingNode):
        return list(node.value)
    return [(item, item) for item in node.value] if isinstance(node, yaml.SequenceNode) else []


def from_value(value: Any, label: str) -> RecipeFile:
    """Make a recipe from a decoded document, also of Olive or Orchard; InputError names the wrong key."""
    if not isinstance(value, dict):
        raise InputError(f"{label} is not a recipe: it has no keys")
    if "input_model" in value or "passes" in value:
        from onnxreg.converters.engine.foreign import olive

        value = olive.translate(value, label)
    elif "export" in value:
        from onnxreg.converters.engine.foreign import orchard

        return orchard.translate(value, label)
    elif "translation" in value:
        raise InputError(
            f"{label}: translation is not for a recipe to say", "take it out: the program itself writes it"
        )
    return RecipeFile.from_json(value, label)
