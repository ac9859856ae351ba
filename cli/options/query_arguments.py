"""The query that the options of a verb make up. Light: `resolve` must start at once."""

from collections.abc import Sequence

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.query.requirements import Query, share


def query(
    formats: Sequence[str] | None = None,
    precision: str | None = None,
    certified: bool = False,
    max_size: str | None = None,
    min_recall: Sequence[str] | None = None,
    where: str | None = None,
    member: str | None = None,
) -> Query:
    """InputError, naming the option, where one of them cannot be read."""
    size, expression = None, None
    if max_size is not None:
        from onnxreg.schema.core.sizes import parse_size

        size = parse_size(max_size)
    if where is not None:
        from onnxreg.schema.query.expression.parser import parse

        expression = parse(where)
    recalls = dict(_recall(text) for text in min_recall or ())
    return Query(tuple(formats or ()), precision, certified, size, recalls, expression, member)


def _recall(text: str) -> tuple[str, float]:
    label, _, least = text.rpartition("=")
    try:
        if label:
            return label, share(float(least))
    except (ValueError, InputError):
        pass
    raise InputError(f"not a least recall: {text[:80]!r}", "write --min-recall LABEL=0.95")
