"""Where the default registry lives."""

import os
from pathlib import Path


def default_root() -> Path:
    """`REG_HOME`, else the user's data directory of this platform."""
    home = os.environ.get("REG_HOME")
    if home:
        return Path(home).expanduser()
    from platformdirs import user_data_path

    return user_data_path("onnxreg", appauthor=False)
