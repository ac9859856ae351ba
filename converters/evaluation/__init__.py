"""Does a quantized token classifier still find what its full-precision parent finds?

A `Suite` has texts with gold spans; `predict` runs a model over windows, `recall` counts characters per label, `rule` is G4/point,
`certify` joins them and `recall_report` writes the evidence, aggregates only.

Start with `certify.py`. The claim in words: docs/certification.md.
"""
