"""A draft becomes a version on this machine.

`Publisher` hashes each file once while it enters the store, completes the manifest and appends the publish event.
`KnownFiles` skips files that did not change.

Start with `add.py`.
Must not import: `maintain`, `server`.
"""
