"""The YAML front matter of a checkpoint's model card (README.md)."""

import re
from pathlib import Path
from typing import Any

CARD = "README.md"
MAX_CARD_BYTES = 2**20
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)


def read_metadata(directory: Path) -> dict[str, Any]:
    """The metadata of a model card; empty without a card that can be read."""
    import yaml

    card = directory / CARD
    if not card.is_file() or card.stat().st_size > MAX_CARD_BYTES:
        return {}
    match = _FRONT_MATTER.match(card.read_text(encoding="utf-8", errors="replace"))
    try:
        value = yaml.safe_load(match[1]) if match else None
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def read_license(directory: Path) -> str | None:
    """The licence that the model card states in its metadata, None if it states none."""
    license_name = read_metadata(directory).get("license")
    return license_name if isinstance(license_name, str) else None
