"""The choice of the artifact of a model that fits an app and its device.

A `Query` has the conditions on an artifact; a `Device` describes the app's ONNX Runtime. `resolve` takes both and a `State`
and returns a `ResolveOutcome`: the best artifact, and the reason why each other artifact was rejected. All functions are
pure, and have test vectors in JSON (tests/vectors) for clients in any language.

`expression` is the language of `--where`, `fields` the fields that it tests: docs/query.md.

Start with `requirements.py`, then `resolve.py`. The rules in words: docs/resolve.md.
Must not import: `gates`, `inputs`, `compare`, `formats`.
"""
