"""Bounded, strict reading of TOML and YAML files. Nothing in a file runs code.

Refused before parsing: what would cost a parser minutes, gigabytes or the whole stack (long keys, deep nesting,
aliases). Repeated keys are errors.
"""

import re
from collections.abc import Hashable
from typing import Any

from onnxreg.schema.core.bounds import MAX_KEY_PARTS, MAX_TEXT_BYTES
from onnxreg.schema.core.errors import InputError, missing_extra

FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")
"""Numbers such as 1e-4, which JSON and YAML 1.2 have and PyYAML takes for text."""
VALUE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of PyYAML, besides its own, for a value that does not fit its type: a 13th month, or `!!bool x`."""

_PART = re.compile(r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*(\.[ \t]*)?""")


def read_toml(data: bytes, label: str) -> dict[str, Any]:
    """Parse a TOML file. InputError, naming `label`, if it is not TOML, is too large or too deep, or has a key of too many parts."""
    import tomllib

    if len(data) > MAX_TEXT_BYTES:
        raise InputError(f"{label} is larger than {MAX_TEXT_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
        for number, line in enumerate(text.split("\n"), 1):
            parts, end = 0, -1
            for match in _PART.finditer(line) if line.count(".") >= MAX_KEY_PARTS else ():
                parts = parts + 1 if match.start() == end else 1  # a quoted text is one part
                end = match.end() if match[1] else -1
                if parts > MAX_KEY_PARTS:
                    raise InputError(f"{label} has a key of more than {MAX_KEY_PARTS} parts in line {number}")
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{label} is nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{label} is not TOML: {error}") from error


def read_yaml(data: bytes | str, label: str, extra: str) -> Any:
    """Parse a YAML or JSON file. InputError, naming `label`, if it is neither; HostError, naming the extra, without PyYAML."""
    if len(data) > MAX_TEXT_BYTES:
        raise InputError(f"{label} is too large: more than {MAX_TEXT_BYTES >> 20} MiB")
    try:
        import yaml
    except ImportError as error:
        raise missing_extra("yaml", extra, f"reading {label}") from error
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        return yaml.load(text, Loader=strict_loader(yaml))
    except UnicodeDecodeError as error:
        raise InputError(f"{label} is not text in UTF-8") from error
    except (yaml.YAMLError, RecursionError, *VALUE_ERRORS) as error:
        # The cause may be a line above the position.
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        position = f", line {mark.line + 1}, column {mark.column + 1}," if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "context", None) or error
        raise InputError(
            f"{label}{position} is neither YAML nor JSON: {' '.join(str(problem).split())[:200]}",
            "look there and in the line above for a bracket, quote or colon that is missing, and for tabs",
        ) from error


def strict_loader(yaml: Any) -> Any:
    """A loader class of PyYAML, given its module: safe, without repeated keys and aliases."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise refused("aliases are not allowed", self.peek_event())
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = set()
            for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, Hashable):
                    break
                if key in keys:
                    raise refused(f"the key {key!r} occurs twice", key_node)
                keys.add(key)
            return super().construct_mapping(node, deep)

    def refused(reason: str, node_or_event: Any) -> Exception:
        error: Exception = yaml.constructor.ConstructorError(None, None, reason, node_or_event.start_mark)
        return error

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))
    return Loader
