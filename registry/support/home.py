"""The directories of the default registry and of the user's keys, trust file and checkpoints."""

import os
import sys
from pathlib import Path

from onnxreg.registry.support import environment


def default_root() -> Path:
    """`REG_HOME`, else the user's data directory of this platform."""
    if home := _named("REG_HOME"):
        return home
    from platformdirs import user_data_path

    return user_data_path("onnxreg", appauthor=False)


def trust_file() -> Path:
    """`REG_TRUST`, else `trust.toml` in the user's configuration directory."""
    return _named("REG_TRUST") or _own("config", "XDG_CONFIG_HOME", ".config") / "trust.toml"


def key_directory() -> Path:
    """`REG_KEYS`, else `keys` in the user's configuration directory."""
    return _named("REG_KEYS") or _own("config", "XDG_CONFIG_HOME", ".config") / "keys"


def state_directory() -> Path:
    """`REG_STATE`, else the user's state directory."""
    return _named("REG_STATE") or _own("state", "XDG_STATE_HOME", ".local/state")


def _named(variable: str) -> Path | None:
    value = environment.read(variable)
    return Path(value).expanduser() if value else None


def _own(kind: str, variable: str, below_home: str) -> Path:
    """A directory of the user's, never the default registry's: on some platforms one directory serves all kinds.

    Linux is done by hand (XDG Base Directory): importing platformdirs takes longer than a `reg resolve`.
    """
    if sys.platform == "linux":
        base = os.environ.get(variable, "")
        above = Path(base) if base.startswith("/") else Path.home() / below_home
        return above / "onnxreg"
    import platformdirs

    find = {"config": platformdirs.user_config_path, "state": platformdirs.user_state_path}[kind]
    return find("onnxreg-user", appauthor=False)
