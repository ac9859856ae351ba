"""The exceptions of onnxreg, in families. Each family has an exit status of its own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class RegError(Exception):
    """A failure that the user can act on. The message says what happened, and to which file or name.

    `hint` is a sentence about what to do next. `drawing` has lines that show the position of a mistake in the input.
    `family` gives the exit status.
    """

    family = "internal"
    drawing: tuple[str, ...] = ()

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __init_subclass__(cls, family: str = "") -> None:
        cls.family = family or cls.family

    def __reduce__(self) -> tuple[Any, ...]:
        # without __init__, because a subclass may take other arguments
        return Exception.__new__, (type(self), self.message), vars(self)


class InputError(RegError, family="input"):
    """The request is wrong: an option, a document, or the name of a verb, pass, profile or task."""


class NotFoundError(RegError, family="not-found"):
    """The request names a model, version, artifact, remote or file that does not exist."""


class IntegrityError(RegError, family="integrity"):
    """The bytes of a file or of a log do not match their digest."""


class ConflictError(RegError, family="conflict"):
    """Another change conflicts with the request: the version exists with another digest, or the channel moved."""


class RemoteError(RegError, family="remote"):
    """A registry on another machine could not be reached, or refused the request."""


class ConversionError(RegError, family="conversion"):
    """A model could not be converted into the requested artifact."""


class GateError(RegError, family="gate"):
    """A limit or rule that people set, such as a channel's policy, is not met."""


class HostError(RegError, family="environment"):
    """This machine has a problem: a full disk, a missing permission, a missing extra."""


class LostRaceError(ConflictError):
    """Another process changed an index file after this process had read it. The caller reads the file again and
    recomputes.
    """


class ForkError(IntegrityError):
    """Two copies of one log have different lines at the same number."""


FAMILIES = {kind.family: kind for kind in RegError.__subclasses__()}  # only the classes above
VERIFY_ADVICE = "run `reg verify`, for a registry elsewhere with --remote REMOTE, to see the extent"  # the hint for damage


@contextmanager
def about(prefix: str, kind: type[RegError] = InputError, hint: str = "") -> Iterator[None]:
    """Put `<prefix>: ` before the message of an InputError from the `with` block, and raise it as class `kind`.

    A `kind` other than InputError also replaces a ConflictError. With an empty `prefix`, errors pass unchanged. `hint`,
    if set, replaces the hint of the error.
    """
    try:
        yield
    except (ConflictError, InputError) as error:
        if not prefix or (kind is InputError and isinstance(error, ConflictError)):
            raise
        raise kind(f"{prefix}: {error.message}", hint or error.hint) from error


def value_error(check: Callable[[Any], T]) -> Callable[[Any], T]:
    """Wrap a check so that it raises ValueError instead of InputError. pydantic and msgspec expect a ValueError."""

    def checked(value: Any) -> T:
        try:
            return check(value)
        except InputError as error:
            raise ValueError(error.message) from error

    return checked


def why(error: object, limit: int = 200) -> str:
    """Return the first line of an error's message or, if it is empty, the name of the error's class."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0][:limit] if lines else type(error).__name__


def unreadable(name: str, error: OSError) -> RegError:
    """Return the error for an unreadable file: InputError if it is missing or a directory, otherwise HostError."""
    message = f"{name} cannot be read: {why(error)}"
    is_request = isinstance(error, FileNotFoundError | IsADirectoryError)
    return InputError(message) if is_request else HostError(message, "check the file and its permissions")


def fault(kind: str, error: RegError) -> tuple[str, str]:
    """Return the kind and the message of a fault. The kind is `kind`, or `unreadable` if the reading failed."""
    return "unreadable" if isinstance(error, RemoteError | HostError) else kind, error.message


def missing_extra(module: str, extra: str, purpose: str) -> HostError:
    """Return the error for a missing library, with the command that installs the extra."""
    where = f"install onnxreg from where it came with its extra {extra}"  # on PyPI, others may own the name
    hint = f"{where}, in a checkout: pip install '.[{extra}]'"
    return HostError(f"{purpose} needs {module}, which is not installed", hint)


@contextmanager
def hub_library(purpose: str) -> Iterator[None]:
    """Convert the errors of importing huggingface_hub: it is not installed, or HF_ENDPOINT is malformed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra("huggingface_hub", "hf", purpose) from error
    except ValueError as error:
        hint = "write https://HOST[:PORT], or unset it"
        raise InputError(f"HF_ENDPOINT is not a URL: {why(error)}", hint) from error


def nearest(name: str, names: Iterable[str], least: float = 0.7, most: int = 3) -> list[str]:
    """Return at most `most` names similar to `name`, best first. `least` is the minimum similarity, 0 to 1."""
    from difflib import get_close_matches

    folded = {candidate.lower(): candidate for candidate in names}
    return [folded[match] for match in get_close_matches(name.lower(), folded, most, least)]


def suggest(name: str, candidates: Iterable[str], otherwise: str = "", least: float = 0.7) -> str:
    """Return a hint that names similar candidates. If there are none, return `otherwise` or list all candidates."""
    names = list(candidates)
    if alike := nearest(name, names, least):
        return f"did you mean {' or '.join(alike)}?"
    return otherwise or f"one of: {', '.join(names)}"


def listing(names: Sequence[str], most: int = 20, length: int | None = 80) -> str:
    """Join the first `most` names, each cut to `length` characters, and count the rest: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(name[:length] for name in names[:most]) + more
