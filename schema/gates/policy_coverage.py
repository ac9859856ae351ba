"""Fast negative test for every resolve of a channel: can any rule of this JSON policy cover the channel?"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError

KNOWN_KEYS = frozenset(
    [
        "channel",
        "models",
        "certified",
        "signed_by",
        "suites",
        "signatures",
        "max_recall_loss",
        "loss_interval",
        "where",
        "suites",
        "synthetic",
        "max_size",
        "licenses",
        "devices",
        "contract",
        "breaking",
        "planned",
        "faithful",
        "min_hours",
    ]
)
"""The keys of a rule; `policy` reads them."""


def rules_in_force(log: bytes) -> Any:
    """The rules of the last line of `policy.jsonl`, as JSON; None if they cannot be read."""
    raw = log.removesuffix(b"\n").rpartition(b"\n")[2]
    try:
        return canonical.decode(raw, "policy")["event"]["rules"]
    except (InputError, KeyError, TypeError):
        return None


def is_plainly_free(rules: Any, model: str, channel: str) -> bool:
    """True if no rule covers a channel of a model. False also if that is not clear: then `policy` decides."""
    return isinstance(rules, list) and not any(_may_cover(rule, model, channel) for rule in rules)


def _may_cover(rule: Any, model: str, channel: str) -> bool:
    if not isinstance(rule, Mapping) or not rule.keys() <= KNOWN_KEYS:
        return True
    models = rule.get("models", ["*"])
    patterns = models if isinstance(models, list) else []
    if not patterns or not all(isinstance(pattern, str) for pattern in (rule.get("channel"), *patterns)):
        return True
    return bool(rule["channel"] == channel) and any(fnmatchcase(model, pattern) for pattern in patterns)
