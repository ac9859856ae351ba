"""Values and documents that every other package uses.

A value (`Digest`, `Version`, `Ref`) is parsed once, strictly, when it enters the program. A document (`Manifest`, `State`,
`Policy`) is read from bytes, and is written as exactly the same bytes.

Packages, lowest first: `core` (values, errors, JSON), `manifest` (one version), `signing` (keys, envelopes), `log` (events,
state), `delta` (new files from old files), `compare` (differences), `query` (artifacts that fit a device), `gates` (demands
of a channel), `inputs` (documents that people write), `formats` (documents for other tools).

Start with `core/canonical.py`, `manifest/manifest.py` and `log/state.py`.
Must not import: any other package of onnxreg.
"""
