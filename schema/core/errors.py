"""One exception family for each next step of the user; the command line maps a family to an exit code."""

from collections.abc import Iterator
from contextlib import contextmanager


class RegError(Exception):
    """A failure that the user can act on.

    Args:
        message: what happened, to which file or name.
        hint: what to do next, as one sentence; may be empty.
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


EXTENT = "run `reg verify`, or `reg verify --remote PLACE` for a registry elsewhere, to see the extent"
"""The hint for damage in a registry, the user's own or another one."""

GOOD_COPY = (
    "fetch a good copy: reg verify --repair --from OTHER, with --remote PLACE for a registry elsewhere"
)
"""The hint for a damaged blob."""

DISK = "check the file, its permissions and its disk"
"""The hint if the system does not read a file."""

SERVED = "this registry"
"""The name of a served registry in messages of the server, which does not reveal its location."""


def at(hint: str, url: str) -> str:
    """Put the registry's URL into a hint, if it has one."""
    from shlex import quote

    return hint if url == SERVED else hint.replace("PLACE", quote(url))


@contextmanager
def placed(url: str) -> Iterator[None]:
    """The hint of an IntegrityError from inside names the place that is damaged."""
    try:
        yield
    except IntegrityError as error:
        error.hint = at(error.hint, url)
        raise


@contextmanager
def about(label: str) -> Iterator[None]:
    """Prefix the message of an InputError with a label, unless that is ""."""
    try:
        yield
    except InputError as error:
        if not label:
            raise
        raise InputError(f"{label}: {error.message}", error.hint) from error


def why(error: object) -> str:
    """The message of a library's or the system's error in one line, without error numbers."""
    message = " ".join(str(getattr(error, "strerror", None) or error).split())
    return message[:300] or type(error).__name__


def unreadable(name: str, error: OSError) -> RegError:
    """The error of a file that the system does not read: a missing one or a directory is the request's fault, the rest the machine's."""
    message = f"{name} cannot be read: {why(error)}"
    if isinstance(error, FileNotFoundError | IsADirectoryError):
        return InputError(message)
    return HostError(message, DISK)


def first_line(error: BaseException, limit: int = 200) -> str:
    """The first line of a library's error message, or the error's name if there is none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:limit]


def missing_extra(module: str, extra: str, purpose: str) -> HostError:
    """The one line that a verb prints when the library it needs is not installed."""
    return HostError(f"{purpose} needs {module}, which is not installed", f"pip install 'onnxreg[{extra}]'")
