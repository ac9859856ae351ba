"""One exception family for each next step of the user; the command line maps a family to an exit code."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class RegError(Exception):
    """A failure that the user can act on: what happened, to which file or name, and what to do next.

    `family` gives the exit status. `hint` is a sentence for a reader of Python and of the shell alike. `drawing` are lines
    that show the place of the mistake in the input.
    """

    family = "internal"
    drawing: tuple[str, ...] = ()

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __init_subclass__(cls, family: str = "") -> None:
        cls.family = family or cls.family


class InputError(RegError, family="input"):
    """The request is wrong: an option, a name of the program (a verb, pass, profile, task, ...), a document."""


class NotFoundError(RegError, family="not-found"):
    """A named thing does not exist: a model, version, artifact or remote, or a file."""


class IntegrityError(RegError, family="integrity"):
    """Bytes or history do not match their digest."""


class ConflictError(RegError, family="conflict"):
    """Another change conflicts: a version that exists with another digest, a moved channel."""


class RemoteError(RegError, family="remote"):
    """A registry elsewhere could not be reached, or it refused."""


class ConversionError(RegError, family="conversion"):
    """A model could not be converted into the requested artifact."""


class GateError(RegError, family="gate"):
    """A stated limit does not hold."""


class HostError(RegError, family="environment"):
    """A problem of this machine: disk, permission, a missing extra."""


class LostRaceError(ConflictError):
    """An index file changed between read and swap; re-read and recompute."""


class ForkError(IntegrityError):
    """Two copies of one log have different lines in the same place."""


VERIFY_ADVICE = "run `reg verify`, for a registry elsewhere with --remote REMOTE, to see the extent"
"""The hint for damage in a registry, the user's own or another one."""


@contextmanager
def about(prefix: str, kind: type[RegError] = InputError, hint: str = "") -> Iterator[None]:
    """Raise an InputError from inside as this kind, with a prefix before its message, unless that is "", and a hint."""
    try:
        yield
    except InputError as error:
        if not prefix:
            raise
        raise kind(f"{prefix}: {error.message}", hint or error.hint) from error


def value_error(check: Callable[[Any], T]) -> Callable[[Any], T]:
    """The check with the exception that pydantic and msgspec give a place in the document to."""

    def checked(value: Any) -> T:
        try:
            return check(value)
        except InputError as error:
            raise ValueError(error.message) from error

    return checked


def why(error: object, limit: int = 200) -> str:
    """The first line of a library's or the system's message, without error numbers; the error's name if it has none."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0][:limit] if lines else type(error).__name__


def unreadable(name: str, error: OSError) -> RegError:
    """The error of a file that the system does not read: a missing one or a directory is the request's fault, the rest the machine's."""
    message = f"{name} cannot be read: {why(error)}"
    is_request = isinstance(error, FileNotFoundError | IsADirectoryError)
    return InputError(message) if is_request else HostError(message, "check the file and its permissions")


def fault(kind: str, error: RegError) -> tuple[str, str]:
    """The kind and the detail of a fault; `unreadable` if something was not read, which tells nothing of its bytes."""
    return "unreadable" if isinstance(error, RemoteError | HostError) else kind, error.message


def missing_extra(module: str, extra: str, purpose: str) -> HostError:
    """The error of a verb whose library is not installed. On an index the name `onnxreg` may belong to somebody else."""
    hint = (
        f"install onnxreg from where it came with its extra {extra}, in a checkout: pip install '.[{extra}]'"
    )
    return HostError(f"{purpose} needs {module}, which is not installed", hint)


@contextmanager
def hub_library(purpose: str) -> Iterator[None]:
    """Turn the errors of an import of huggingface_hub, which reads HF_ENDPOINT, into ours."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra("huggingface_hub", "hf", purpose) from error
    except ValueError as error:
        raise InputError(f"HF_ENDPOINT is not a URL: {why(error)}", "write https://HOST") from error


def nearest(name: str, names: Iterable[str], least: float = 0.6, most: int = 3) -> list[str]:
    """The most similar names, the best first; case does not matter. `least` is a similarity from 0 to 1."""
    from difflib import get_close_matches

    folded = {candidate.lower(): candidate for candidate in names}
    return [folded[match] for match in get_close_matches(name.lower(), folded, most, least)]


def suggest(name: str, candidates: Iterable[str], otherwise: str = "", least: float = 0.6) -> str:
    """A hint: similar names; if there are none, `otherwise`, by default the list of all names."""
    names = list(candidates)
    if alike := nearest(name, names, least):
        return f"did you mean {' or '.join(alike)}?"
    return otherwise or f"one of: {', '.join(names)}"
