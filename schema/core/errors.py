"""One exception family for each next step of the user; the command line maps a family to an exit code."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class RegError(Exception):
    """A failure that the user can act on.

    Args:
        message: what happened, to which file or name.
        hint: what to do next, as a sentence for a reader of Python and of the shell alike.
    """

    family = "internal"
    drawing: tuple[str, ...] = ()
    """Lines that show the place of the mistake in the input."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(RegError):
    """The request is wrong: an option, a name of the program (a verb, pass, profile, task, ...), a document."""

    family = "input"


class NotFoundError(RegError):
    """A named thing does not exist: a model, version, artifact or remote, or a file."""

    family = "not-found"


class IntegrityError(RegError):
    """Bytes or history do not match their digest."""

    family = "integrity"


class ConflictError(RegError):
    """Another change conflicts: a version that exists with another digest, a moved channel."""

    family = "conflict"


class RemoteError(RegError):
    """A registry elsewhere could not be reached, or it refused."""

    family = "remote"


class ConversionError(RegError):
    """A model could not be converted into the requested artifact."""

    family = "conversion"


class GateError(RegError):
    """A stated limit does not hold."""

    family = "gate"


class HostError(RegError):
    """A problem of this machine: disk, permission, a missing extra."""

    family = "environment"


class LostRaceError(ConflictError):
    """An index file changed between read and swap; re-read and recompute."""


class ForkError(IntegrityError):
    """Two copies of one log have different lines in the same place."""


VERIFY_ADVICE = "run `reg verify`, for a registry elsewhere with --remote REMOTE, to see the extent"
"""The hint for damage in a registry, the user's own or another one."""


@contextmanager
def about(prefix: str, kind: type[RegError] = InputError, hint: str = "") -> Iterator[None]:
    """Raise an InputError from inside as this kind, with a prefix before its message (unless that is "") and a hint."""
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
    """The first line of a library's or the system's error message without error numbers; the error's name if it has none."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0][:limit] if lines else type(error).__name__


def unreadable(name: str, error: OSError) -> RegError:
    """The error of a file that the system does not read: a missing one or a directory is the request's fault, the rest the machine's."""
    message = f"{name} cannot be read: {why(error)}"
    if isinstance(error, FileNotFoundError | IsADirectoryError):
        return InputError(message)
    return HostError(message, "check the file, its permissions and its disk")


def fault(kind: str, error: RegError) -> tuple[str, str]:
    """The kind and the detail of a fault; `unreadable` if something was not read, which tells nothing of its bytes."""
    return "unreadable" if isinstance(error, RemoteError | HostError) else kind, error.message


def missing_extra(module: str, extra: str, purpose: str) -> HostError:
    """The one line that a verb prints when the library it needs is not installed."""
    return HostError(f"{purpose} needs {module}, which is not installed", pip_command(extra))


@contextmanager
def hub_library(purpose: str) -> Iterator[None]:
    """Turn the errors of an import of huggingface_hub, which reads HF_ENDPOINT, into ours."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "huggingface_hub").partition(".")[0]
        raise missing_extra(module, "hf", purpose) from error
    except ValueError as error:
        raise InputError(f"HF_ENDPOINT is not a URL: {why(error)}", "write https://HOST") from error


def pip_command(extra: str) -> str:
    """The command that adds an extra to this installation, from the place that it came from (PEP 610).

    On an index the name `onnxreg` may belong to somebody else, unless this program came from there.
    """
    from importlib.metadata import PackageNotFoundError, distribution
    from json import loads
    from shlex import quote
    from urllib.parse import unquote, urlsplit

    try:
        origin = loads(distribution("onnxreg").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return f"in the checkout: pip install '.[{extra}]'"
    url, directory, vcs = origin.get("url"), origin.get("dir_info"), origin.get("vcs_info")
    if directory is not None:
        option = "-e " if directory.get("editable") else ""
        return f"pip install {option}{quote(f'{unquote(urlsplit(url).path)}[{extra}]')}"
    if vcs is not None:
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f"pip install {quote(f'onnxreg[{extra}]' + (f' @ {url}' if url else ''))}"


def nearest(name: str, names: Iterable[str], least: float = 0.6, most: int = 3) -> list[str]:
    """The most similar names, the best first; case does not matter. `least` is a similarity from 0 to 1."""
    from difflib import get_close_matches

    folded: dict[str, list[str]] = {}
    for candidate in names:
        folded.setdefault(candidate.lower(), []).append(candidate)
    matches = get_close_matches(name.lower(), folded, most, least)
    return [candidate for match in matches for candidate in folded[match]][:most]


def suggest(name: str, candidates: Iterable[str], otherwise: str = "", least: float = 0.6) -> str:
    """A hint: similar names; if there are none, `otherwise`, by default the list of all names."""
    names = list(candidates)
    if alike := nearest(name, names, least):
        return f"did you mean {' or '.join(alike)}?"
    return otherwise or f"one of: {', '.join(names)}"
