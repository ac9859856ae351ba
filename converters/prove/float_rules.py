"""The rules by which converters round to float16."""

HALF_RULES: dict[str, tuple[float, float]] = {
    "nearest": (0.0, float("inf")),
    "float16 5.96e-08..65504": (5.96e-08, 65504.0),
    "float16 1e-07..65504": (1e-07, 65504.0),
    "float16 1e-07..10000": (1e-07, 1e4),
}
"""The bounds of converters: what is smaller or larger becomes the bound, with its sign. Zero and infinity stay."""
