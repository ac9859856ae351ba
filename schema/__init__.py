"""Values and documents: what every other part of onnxreg speaks in. Nothing here does I/O.

The values that `reg ls` and `reg resolve` need (digest, ref, version, errors, events, state, query) are plain
dataclasses and named tuples, so that those verbs start in milliseconds; the documents that strangers hand us (manifest, recipe)
are pydantic models.
"""
