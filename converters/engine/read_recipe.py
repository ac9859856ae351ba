"""Reading a recipe: YAML or JSON, ours, Olive's or Orchard's."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.foreign import olive, orchard
from onnxreg.schema.core.errors import InputError, NotFoundError, missing_extra
from onnxreg.schema.core.problems import InvalidValueError, Place
from onnxreg.schema.inputs.recipe_file import RecipeFile

OURS_TO_SAY = ("profile", "profile_version")
"""Keys that the program writes, and nobody else."""
MAX_BYTES = 4 * 2**20
RECIPE = "recipe"
BEGIN = "; `reg profiles show android` prints one to begin with"
MEND = "look there and in the line above for a bracket, quote or colon that is missing, and for tabs"
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")
"""Numbers such as 1e-4, which JSON and YAML 1.2 have and PyYAML takes for text."""

COMMENT = re.compile(
    r'(?P<text>"(?:[^"\\\n]|\\.)*+"?)|(?<![^\s,{}\[\]"])(?://[^\n]*|/\*.*?(?:\*/|\Z))', re.DOTALL
)
SPACE = r"(?>\s+|//[^\n]*|/\*.*?\*/)*+"
JSON = re.compile(rf'{SPACE}[{{\[]{SPACE}["}}\]{{]', re.DOTALL)
"""How a JSON document begins: comments, and an object with a key in quotes, or a list."""


def read_recipe(path: Path) -> RecipeFile:
    """The recipe in a file. A document with `passes` is Olive's, one with `export` Orchard's.

    Raises NotFoundError where there is no such file, InputError where it is no recipe, or calls itself a profile's.
    """
    value = read_document(path)
    if claimed := next((key for key in OURS_TO_SAY if isinstance(value, dict) and key in value), None):
        raise InputError(
            f"{path.name}: {claimed} is not for a recipe to say", "take it out: the program itself writes it"
        )
    with located(path):
        return from_value(value, path.name)


def without_comments(text: str) -> str:
    """A JSON document with spaces for its `//` and `/* */` comments; every other text as it is."""
    if not JSON.match(text):
        return text
    return COMMENT.sub(lambda found: found["text"] or re.sub(r"[^\n]", " ", found[0]), text)


@contextmanager
def located(path: Path) -> Iterator[None]:
    """What is not valid in the document of a file is told with its line."""
    try:
        yield
    except InvalidValueError as error:
        line = line_of(without_comments(path.read_text("utf-8")), error.place)
        raise (error if line is None else error.at_line(path.name, line)) from error


def line_of(text: str, place: Place) -> int | None:
    """The line, from 1, of a value in a YAML document, or of what it should be in; None where even that is not there."""
    import yaml

    node, line = yaml.compose(text, Loader=_loader(yaml)), None
    for part in place:
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
    """Of a mapping keys and values, of a list each item and itself, of a scalar nothing."""
    if isinstance(node, yaml.MappingNode):
        return list(node.value)
    return [(item, item) for item in node.value] if isinstance(node, yaml.SequenceNode) else []


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


def read_document(path: Path, what: str = RECIPE) -> Any:
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
        raise NotFoundError(
            f"there is no {what} at {path}", f"check the path{BEGIN if what == RECIPE else ''}"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path.name} is no text", f"a {what} is YAML or JSON, in UTF-8") from error
    try:
        return yaml.load(without_comments(text), Loader=_loader(yaml))
    except yaml.MarkedYAMLError as error:
        raise _broken(error, path.name) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path.name} is neither YAML nor JSON: {reason}", MEND) from error


def _broken(error: Any, name: str) -> InputError:
    """What the parser of YAML found, and where; the cause may stand a line above."""
    mark = error.problem_mark or error.context_mark
    where = f", line {mark.line + 1}, column {mark.column + 1}," if mark is not None else ""
    told = " ".join(str(error.problem or error.context).split())[:200]
    return InputError(f"{name}{where} is neither YAML nor JSON: {told}", MEND)


def _loader(yaml: Any) -> Any:
    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Safe; a key that stands twice is an error, and so are aliases, with which a line becomes gigabytes."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise self._refused("aliases are not allowed", self.peek_event())
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            if twice := next((key for key in keys if keys.count(key) > 1), None):
                last = [key for key, _ in node.value][len(keys) - 1 - keys[::-1].index(twice)]
                raise self._refused(f"the key {twice!r} stands twice", last)
            return super().construct_mapping(node, deep)

        def _refused(self, why: str, where: Any) -> Exception:
            error: Exception = yaml.constructor.ConstructorError(None, None, why, where.start_mark)
            return error

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))
    return Loader
