"""The libraries that metrics take their values from, imported when a metric is computed."""

from collections.abc import Sequence
from typing import Any

from onnxreg.schema.core.errors import missing_extra

EXTRA = "evaluate"
LIBRARIES = ("scikit-learn", "scipy", "seqeval")
"""Their distributions."""


def scikit_metrics() -> Any:
    """`sklearn.metrics`; HostError if scikit-learn is not installed."""
    try:
        import sklearn.metrics
    except ImportError as error:
        raise missing_extra("scikit-learn", EXTRA, "this metric") from error
    return sklearn.metrics


def scipy_stats() -> Any:
    """`scipy.stats`; HostError if SciPy is not installed."""
    try:
        import scipy.stats
    except ImportError as error:
        raise missing_extra("scipy", EXTRA, "this metric") from error
    return scipy.stats


def strict_entities(tags: Sequence[str]) -> set[Any]:
    """The entities of a sequence of IOB2 tags (`seqeval.scheme.Entities`); HostError if seqeval is not installed."""
    try:
        from seqeval.scheme import IOB2, Entities
    except ImportError as error:
        raise missing_extra("seqeval", EXTRA, "this metric") from error
    return set(Entities([list(tags)], IOB2).entities[0])
