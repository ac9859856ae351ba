"""Translation of the errors of huggingface_hub, and of HTTP below it, into ours."""

import re

import httpx2
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from onnxreg.registry.store.net import http_rules, requests
from onnxreg.schema.core.errors import HostError, InputError, RegError, RemoteError

_LOGIN = "log in with `hf auth login`, or set HF_TOKEN to a token that may do this"


class NoRepositoryError(RemoteError):
    """The repository does not exist, or this token may not see it."""


class StaleParentError(Exception):
    """A commit was not applied and never will be: its parent is no longer the head."""


def translated(error: Exception, operation: str, revision: str) -> RegError:
    """Translate a foreign error into one of ours. It holds no header and no URL, so no token and no signed address."""
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    family: type[RegError] = RemoteError
    match error:
        case HFValidationError():
            family, text, hint = InputError, f": {one_line(error)}", "write hf://ORG/NAME"
        case OfflineModeIsEnabled():
            text, hint = " cannot be reached in offline mode", "unset HF_HUB_OFFLINE"
        case GatedRepoError():
            text, hint = " is gated", f"ask for access on its page, then {_LOGIN}"
        case RepositoryNotFoundError():
            family, text = NoRepositoryError, " does not exist, or you may not see it"
            hint = f"check the name; if it is private, {_LOGIN}"
        case RevisionNotFoundError():
            text, hint = f" has no revision {revision}", "check it, or make the branch first"
        case HfHubHTTPError():
            return _of_status(error, operation)
        case httpx2.HTTPError() | ConnectionError() | TimeoutError():
            text = f" cannot be reached: {one_line(error) or type(error).__name__}"
            variables = http_rules.proxy_variables()
            hint = f"check the network, HF_ENDPOINT and {variables}, then run the command again"
            hint = requests.final_hint(error) or hint
        case OSError():
            family, text = HostError, f": {error.strerror or type(error).__name__}"
            hint = "check this machine's disk"
        case _:
            text = f": the answer is not the Hub's ({type(error).__name__})"
            hint = "check HF_ENDPOINT; is there a proxy in between?"
    return family(f"{operation}{text}", hint)


def _of_status(error: HfHubHTTPError, operation: str) -> RemoteError:
    status, hint = error.response.status_code, ""
    words = one_line(error.server_message or "")[:200]
    if status == 401:
        text, hint = f"{words or 'the Hub does not know this token'} (401)", _LOGIN
    elif status == 403:
        text, hint = f"{words or 'no permission'} (403)", f"if it is about the token, {_LOGIN}"
    elif status == 429:
        return RemoteError(*too_many(operation, error))
    elif status >= 500:
        text, hint = f"the Hub fails ({status})", http_rules.later(pause(error))
    else:
        text = f"the Hub refuses ({status}){': ' if words else ''}{words}"
    return RemoteError(f"{operation}: {text}", hint)


def too_many(operation: str, error: HfHubHTTPError) -> tuple[str, str]:
    """The message and hint for a Hub that wants to be left alone for a while."""
    return f"{operation}: too many requests (429)", http_rules.later(pause(error))


def is_passing(error: Exception) -> bool:
    """True if the same request may succeed later."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in (408, 429) or error.response.status_code >= 500
    if isinstance(error, httpx2.ProxyError | httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
        return False
    return isinstance(error, httpx2.TransportError) and not requests.final_hint(error)


def pause(error: BaseException | None) -> float:
    """The seconds that the Hub wants to be left alone after an error."""
    return http_rules.pause_seconds(error.response.headers) if isinstance(error, HfHubHTTPError) else 0.0


def one_line(error: object) -> str:
    """The first line with something on it, without addresses: those of uploads are signed."""
    line = next((line for line in str(error).splitlines() if line.strip()), "")
    return re.sub(r"https?://\S+", "...", line).strip()
