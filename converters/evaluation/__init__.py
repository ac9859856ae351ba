"""The certification of a quantized token classifier: its recall compared with its full-precision parent's.

A `Suite` has texts with gold spans; `predict` runs a model over windows, `recall` counts characters per
label, `rule` is G4/point, `certify` joins them and `recall_report` writes the evidence, aggregates only.

Start with `certify.py`. The claim in words: docs/certification.md.
"""
