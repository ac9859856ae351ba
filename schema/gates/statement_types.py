"""The media types of statements in a log, for readers that need no document of them."""

BENCHMARK = "application/vnd.onnxreg.benchmark.v1+json"
"""The measured speed of a version's artifacts: `formats/benchmark.py`."""
PROOF = "application/vnd.onnxreg.faithfulness.v1+json"
"""The proof that an artifact is its parent, rounded: `faithfulness.py`."""
