"""The choice of the artifact of a model that fits an app and its device.

A `Query` has the conditions on an artifact; a `Device` describes the app's ONNX Runtime. `resolve_among` applies both to a
`State` and returns a `ResolveOutcome`: the best artifact, and the reason why each other artifact was rejected. All functions
are pure, and have test vectors in JSON (tests/vectors) for clients in any language.

`expression` is the language of `--where`; `fields` has the fields that it tests (docs/query.md).

Start with `resolve.py`, then `device.py`. The rules in words: docs/resolve.md.
Must not import: `gates`, `inputs`, `compare`, `formats`.
"""
