"""The immutable document of one model version: `openmed-onnx.json`.

A `Manifest` lists `Artifact`s (one runnable export each), companion files, the recorded `Recipe` and the
evidence behind each certification. A `Draft` is the same before its files have digests: converters make
drafts, `Registry.add` turns one into a manifest. `manifest_v1` reads documents of OpenMed's converter.

Start with `manifest.py`, then `parts.py`.
Must not import: `log`, `query` or anything above them.
"""
