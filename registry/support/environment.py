"""The environment variables of `reg`, which only this module reads, and the values that follow from them: the user's
directories, and the claimed author of events (manifests have no author).
"""

import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onnxreg.schema.core.errors import HostError

VARIABLES = {
    "REG_HOME": "The default registry's directory.",
    "REG_ACTOR": "The claimed author of events, for the log; empty: nobody; default: user@host.",
    "REG_MAX_AGE": "The greatest age of a remote's answer: 12h, 7d.",
    "REG_READ_TIMEOUT": "Seconds without a byte after which a remote counts as silent: 60.",
    "REG_READ_DEADLINE": "Seconds that one file of a remote may take, all its reads and tries together: 86400; 0: no limit.",
    "REG_CACHE_SIZE": "The size limit of the cache of export steps: 20GB.",
    "REG_SERVE_TOKEN": "The token that clients of a served registry must send.",
    "REG_TOKEN_HOST": "The token for the web server HOST, such as REG_TOKEN_MODELS_EXAMPLE for models.example.",
    "REG_SIGNING_KEY": "The name of the key that signs each line of a log, or a private key itself as PEM.",
    "REG_KEY_PASSPHRASE": "The passphrase of a key, if there is no terminal to ask on.",
    "REG_KEYS": "The directory of your keys.",
    "REG_TRUST": "The file of the keys that you trust.",
    "REG_STATE": "The directory of what is remembered for you: known heads, remotes, your files, the cache.",
}
"""Each variable and its meaning. `REG_TOKEN_HOST` means one variable for each host."""
TOKEN_PREFIX = "REG_TOKEN_"
NO_HOME = Path("/nonexistent")
"""The assumed home of an account without a home directory: a path that does not exist and cannot be made."""
MAX_ACTOR_CHARACTERS = 200
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def read(name: str) -> str | None:
    """Return the value of an environment variable; None if it is not set."""
    return os.environ.get(name)


def names() -> list[str]:
    """List the names of the variables; in place of `REG_TOKEN_HOST`, the variables that are set for hosts."""
    hosts = sorted(name for name in os.environ if name.startswith(TOKEN_PREFIX))
    return [name for name in VARIABLES if not name.startswith(TOKEN_PREFIX)] + hosts


def default_root() -> Path:
    """Return the directory of the default registry: `REG_HOME`, else the user's data directory of this platform."""
    if home := _named("REG_HOME"):
        return home
    if _home() is None:
        hint = "set REG_HOME to a directory of yours, or name the registry: reg --registry DIRECTORY"
        raise HostError("this account has no home directory, so there is no default registry", hint)
    from platformdirs import user_data_path

    return user_data_path("onnxreg", appauthor=False)


def trust_file() -> Path:
    return _named("REG_TRUST") or _own("config", ".config") / "trust.toml"


def key_directory() -> Path:
    return _named("REG_KEYS") or _own("config", ".config") / "keys"


def state_directory() -> Path:
    return _named("REG_STATE") or _own("state", ".local/state")


def cache_directory() -> Path:
    state = _named("REG_STATE")
    return state / "cache" if state else _own("cache", ".cache")


def _named(variable: str) -> Path | None:
    value = read(variable)
    return Path(os.path.expanduser(value)) if value else None  # noqa: PTH111


def _home() -> Path | None:
    """Return the user's home directory; None if the account has no home directory."""
    home = os.path.expanduser("~")  # noqa: PTH111
    return None if home == "~" else Path(home)


def _own(kind: str, below_home: str) -> Path:
    """Return the user's directory of a kind (cache, state, ...), on every platform another than the default registry's.

    On Linux, this function applies XDG itself, because importing platformdirs takes longer than a `reg resolve`.
    """
    if sys.platform == "linux":
        base = os.environ.get(f"XDG_{kind.upper()}_HOME", "")
        return (Path(base) if base.startswith("/") else (_home() or NO_HOME) / below_home) / "onnxreg"
    import platformdirs

    directory: Path = getattr(platformdirs, f"user_{kind}_path")("onnxreg-user", appauthor=False)
    return directory


def stamp(name: str, actor: str | None = None, reason: str | None = None) -> dict[str, Any]:
    """Return the common fields of a new event about a model (see `actor_of_event`). `time` never decides an order."""
    return {
        "name": name,
        "time": datetime.now(UTC).strftime(TIME_FORMAT),
        "nonce": os.urandom(16).hex(),
        "actor": actor_of_event(actor),
        "reason": reason,
    }


def actor_of_event(actor: str | None) -> str | None:
    """Return the author to record: `actor`, else `REG_ACTOR`, else `user@host`, as far as known. For "": None, no author."""
    actor = read("REG_ACTOR") if actor is None else actor
    if actor is not None:
        return actor or None
    from getpass import getuser
    from socket import gethostname

    parts = []
    for part in (getuser, gethostname):
        with suppress(ImportError, KeyError, OSError):
            parts.append(part())
    name = "@".join(filter(None, parts))
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:MAX_ACTOR_CHARACTERS] or None
