"""The choice of the artifact that fits an app and its device.

`resolve_among` takes a model's state, a `Query` (the app's conditions) and a `Device`. It returns a `ResolveOutcome`:
the best artifact, and the reason why each other artifact was rejected. `expression` is the language of `--where`. All
functions are pure. Clients in other languages run the same test vectors (tests/vectors).

Start with `resolve.py`, then `device.py`. The rules in words: docs/resolve.md. Must not import: `gates`, `inputs`,
`compare`, `formats`.
"""
