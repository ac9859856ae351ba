"""The choice of the artifact of a model that fits an app and its device.

A `Query` says what an artifact must be, a `Device` what the app's ONNX Runtime can load; `resolve` takes both and a `State`
and returns a `ResolveOutcome`: the best artifact, and the reason against each other one. All of it is pure, and specified by JSON
vectors (tests/vectors) that clients in any language run.

Start with `requirements.py`, then `resolve.py`. The rules in words: docs/resolve.md.
Must not import: `gates`, `inputs`, `compare`, `formats`.
"""
