"""Names and limits of manifests that verbs use without reading one."""

FILENAME = "openmed-onnx.json"
FORMAT = "openmed-onnx"
ASIDE = ("golden", "operator-config")
"""Roles of sidecars that no runtime loads: one tests it, one builds it."""
UNJUDGED = ("not evaluated",)
"""The reasons of a certification without an evaluation."""
CHANNELS = {"RGB": 3, "BGR": 3, "L": 1}
"""The number of channels of each colour order; `L` is luminance alone."""
LOSS = "quant_recall_delta"
"""The check whose value is the largest loss of recall of any label against the full-precision parent."""
LIMIT = 0.005
"""The most that a certified artifact may lose, if nothing names another limit: that of the gate G4."""
