"""The YAML front matter of a checkpoint's model card (README.md)."""

import re
from pathlib import Path

CARD = "README.md"
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)


def read_license(directory: Path) -> str | None:
    """The licence that the model card states in its metadata, None if it states none."""
    import yaml

    card = directory / CARD
    match = (
        _FRONT_MATTER.match(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else None
    )
    if match is None:
        return None
    try:
        stated = yaml.safe_load(match[1])
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    license_name = stated.get("license") if isinstance(stated, dict) else None
    return license_name if isinstance(license_name, str) else None
