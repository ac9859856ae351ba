"""Values and documents that every other package uses.

A value (`Digest`, `Version`, `Ref`) is parsed once, strictly, when it enters the program. A document (`Manifest`, `State`,
`Policy`) is read from bytes, and is written as exactly the same bytes.

Packages, lowest first: `core` (values, errors, JSON), `manifest` (one version), `signing` (keys and envelopes), `log`
(events and the state line), `query` (the artifact that fits a device), `gates` (the demands of a channel), `inputs`
(documents that people write), `compare` (differences) and `formats` (documents of other tools).

Start with `core/canonical.py`, `manifest/manifest.py` and `log/state.py`.
Must not import: any other package of onnxreg.
"""
