"""The document of one version: `openmed-onnx.json`. It never changes.

A `Manifest` has artifacts, companion files, and the recipe that made them. A `Draft` is a manifest without digests.

Start with `manifest.py`. Must not import: `log`, `query` or anything above them.
"""
