"""What people get told of a parameter that is not valid."""

from collections.abc import Iterable
from difflib import get_close_matches

from pydantic import ValidationError

from onnxreg.schema.errors import InputError
from onnxreg.schema.model import UNKNOWN


def refusal(error: ValidationError, what: str, known: Iterable[str]) -> InputError:
    """The first error in words, an unknown name before others, with what there is instead.

    Args:
        what: such as `pass OrtFormat: parameter`.
        known: the names that there are.
    """
    found = error.errors(include_url=False)
    first = next((each for each in found if each["type"] == UNKNOWN), found[0])
    where = ".".join(str(part) for part in first["loc"]) or "(top)"
    if first["type"] != UNKNOWN:
        return InputError(f"{what} {where}: {first['msg'].removeprefix('Value error, ')}")
    names = list(known)
    near = get_close_matches(where, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(names)}" if names else "it takes none"
    return InputError(f"{what} {where[:80]}: there is none", hint)
