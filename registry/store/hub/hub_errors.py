"""What the errors of huggingface_hub, and of HTTP below it, mean; and which of them pass."""

import re
import time

import httpx2
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from onnxreg.schema.core.errors import HostError, InputError, RegError, RemoteError

LONGEST_PAUSE = 300
"""Seconds that a `Retry-After` is obeyed; the Hub counts requests in windows of so many."""
_LOGIN = "log in with `hf auth login`, or set HF_TOKEN to a token that may do this"


class NoRepositoryError(RemoteError):
    """There is no such repository, or none that this token may see."""


class StaleParentError(Exception):
    """A commit was not applied and never will be: its parent is no longer the head."""


class UnnamedCommitError(Exception):
    """An answer without content does not say which commit it is of: by now the newest one may be another."""


def translated(error: Exception, what: str, revision: str) -> RegError:
    """The error of ours that a foreign one means. Holds no header and no URL, so no token nor signed address."""
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    match error:
        case HFValidationError():
            return InputError(f"{what}: {one_line(error)}", "write hf://ORG/NAME")
        case OfflineModeIsEnabled():
            return RemoteError(f"{what} cannot be reached in offline mode", "unset HF_HUB_OFFLINE")
        case GatedRepoError():
            return RemoteError(f"{what} is gated", f"ask for access on its page, then {_LOGIN}")
        case RepositoryNotFoundError():
            hint = f"check the name; if it is private, {_LOGIN}"
            return NoRepositoryError(f"{what} does not exist, or you may not see it", hint)
        case RevisionNotFoundError():
            return RemoteError(f"{what} has no revision {revision}", "check it, or make the branch first")
        case HfHubHTTPError():
            return _of_status(error, what)
        case httpx2.HTTPError() | ConnectionError() | TimeoutError():
            return RemoteError(
                f"{what} cannot be reached: {one_line(error) or type(error).__name__}",
                "check the network and HF_ENDPOINT, then run the command again",
            )
        case OSError():
            return HostError(f"{what}: {error.strerror or type(error).__name__}", "check this machine's disk")
    return RemoteError(
        f"{what}: the answer is none of the Hub's ({type(error).__name__})",
        "check HF_ENDPOINT; is there a proxy in between?",
    )


def _of_status(error: HfHubHTTPError, what: str) -> RemoteError:
    status = error.response.status_code
    match status:
        case 401:
            return RemoteError(f"{what}: the Hub does not know this token (401)", _LOGIN)
        case 403:
            return RemoteError(f"{what}: no permission (403)", _LOGIN)
        case 429:
            return RemoteError(*too_many(what))
        case _ if status >= 500:
            return RemoteError(f"{what}: the Hub fails ({status})", "run the command again later")
    said = f": {error.server_message}" if error.server_message else ""
    return RemoteError(f"{what}: the Hub refuses ({status}){one_line(said)[:200]}")


def too_many(what: str) -> tuple[str, str]:
    return f"{what}: too many requests (429)", "wait some minutes, then run the command again"


def is_passing(error: Exception) -> bool:
    """Whether to ask again, and then not before the Hub wants to be asked."""
    if isinstance(error, HfHubHTTPError):
        obey_pause(error)
        return error.response.status_code in (408, 429) or error.response.status_code >= 500
    return isinstance(error, httpx2.TransportError)


def obey_pause(error: HfHubHTTPError) -> None:
    wanted = error.response.headers.get("Retry-After", "")
    if wanted.isdigit():
        time.sleep(min(int(wanted), LONGEST_PAUSE))


def one_line(error: object) -> str:
    """The first line with something on it, without addresses: those of uploads are signed."""
    line = next((line for line in str(error).splitlines() if line.strip()), "")
    return re.sub(r"https?://\S+", "...", line).strip()
