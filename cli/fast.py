"""The lane without typer: the common forms of the verbs that scripts call in a loop.

Whatever is not recognised here (another verb, `--help`, an unknown option, a missing value) goes to typer, so that
this table never has to explain itself. Both lanes end in the same `run`.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from onnxreg.cli.context import Session

FLAG, VALUE, NUMBER, LIST, ARGUMENT = "flag", "value", "number", "list", "argument"

Options = dict[str, tuple[str, str]]
"""An option, the parameter it fills, and how. Parameters are those of the verb's `run` and of its typer command."""

GLOBALS: Options = {"--registry": ("registry", VALUE), "--quiet": ("quiet", FLAG)}
VERBS: dict[str, Options] = {
    "ls": {
        "--json": ("as_json", FLAG),
        "--format": ("formats", LIST),
        "--precision": ("precision", VALUE),
        "--certified": ("certified", FLAG),
        "--remote": ("remote", VALUE),
        "--offline": ("offline", FLAG),
        "--max-age": ("max_age", VALUE),
    },
    "resolve": {
        "--json": ("as_json", FLAG),
        "--format": ("formats", LIST),
        "--precision": ("precision", VALUE),
        "--certified": ("certified", FLAG),
        "--max-size": ("max_size", VALUE),
        "--min-recall": ("min_recall", LIST),
        "--where": ("where", VALUE),
        "--member": ("member", VALUE),
        "--device": ("device", VALUE),
        "--remote": ("remote", VALUE),
        "--offline": ("offline", FLAG),
        "--max-age": ("max_age", VALUE),
        "--explain": ("explain", FLAG),
        "--verify": ("verify", FLAG),
    },
    "export": {
        "--json": ("as_json", FLAG),
        "--profile": ("profile", VALUE),
        "--task": ("task", VALUE),
        "--opset": ("opset", NUMBER),
        "--max-seq-length": ("max_seq_length", NUMBER),
        "--quantize": ("quantize", FLAG),
        "--int8-embeddings": ("int8_embeddings", FLAG),
        "--recipe": ("recipe", VALUE),
        "--name": ("name", VALUE),
        "--version": ("version", VALUE),
        "--push": ("push", VALUE),
        "--eval-suite": ("eval_suite", VALUE),
        "--trust-remote-code": ("trust_remote_code", FLAG),
        "--allow-code": ("allow_code", LIST),
    },
}
ARGUMENTS = {"ls": "name", "resolve": "ref", "export": "source"}
"""The one argument of a verb."""
MODULES = {"export": "services.export_lookup"}
"""Where `run` is, of a verb whose own module it is not in."""

REQUIRED = frozenset({"ref"})


class UnfamiliarError(Exception):
    """Not one of the common forms."""


def parse(words: list[str]) -> Callable[[], bool | None] | None:
    """The command line as something to run; None where it is not one of the common forms.

    What is run returns False where it did nothing, since this takes the whole verb.
    """
    try:
        rest = iter(words)
        options = _read(rest, GLOBALS, "verb")
        verb = options.pop("verb", "")
        if verb not in VERBS:
            return None
        given = _read(rest, VERBS[verb], ARGUMENTS[verb])
    except UnfamiliarError:
        return None
    if not REQUIRED.isdisjoint({ARGUMENTS[verb]} - given.keys()):
        return None
    if "registry" in options:
        options["registry"] = Path(options["registry"])
    module = f"onnxreg.cli.{MODULES.get(verb, 'commands.' + verb)}"
    session = Session(**options, as_json=given.get("as_json", False))
    return lambda: import_module(module).run(session, **given)


def _read(rest: Iterator[str], options: Options, argument: str) -> dict[str, Any]:
    """The parameters that the words fill; stops behind a verb."""
    given: dict[str, Any] = {}
    for word in rest:
        name, kind = options.get(word, (argument, ARGUMENT))
        if kind == FLAG:
            given[name] = True
        elif kind == VALUE:
            given[name] = _plain(next(rest, ""))
        elif kind == NUMBER:
            given[name] = _number(next(rest, ""))
        elif kind == LIST:
            given.setdefault(name, []).append(_plain(next(rest, "")))
        elif argument in given:
            raise UnfamiliarError
        else:
            given[name] = _plain(word)
            if name == "verb":
                break
    return given


def _number(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        raise UnfamiliarError
    return int(word)


def _plain(word: str) -> str:
    if word[:1] in ("", "-"):
        raise UnfamiliarError
    return word
