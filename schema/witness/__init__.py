"""The witness log as values: signed notes, the Merkle tree in tiles, the sorted Merkle map, and proofs.

`SignedNote` is a text with signatures, `TreeHead` the text of a checkpoint, `TiledTree` the tree of the log,
`merkle_map` the map from names to heads that each leaf is the root of, `WitnessedHead` a checkpoint with
cosignatures and the newest leaf.

Start with `witnessed.py`. Nothing is computed with a key here.
Must not import: `inputs`, `log` or anything above them.
"""
