"""The immutable document of one model version: `openmed-onnx.json`.

A `Manifest` has `Artifact`s (one runnable export each), companion files, the `Recipe` that made them, and evidence. A
`Draft` has the same facts before the files have digests; `Registry.add` turns a draft into a manifest.

Start with `manifest.py`.
Must not import: `log`, `query` or anything above them.
"""
