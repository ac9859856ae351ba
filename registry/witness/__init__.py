"""The witness log of a registry: the job that publishes it, those who cosign it, and the check of a reader.

`WitnessLog` reads it, `LogPublisher` appends the present heads, `cosign` signs a checkpoint that continues the last
one, `copies` keeps the cosigned checkpoints, `WitnessMemory` is what a signer signed last.

Start with `witness_log.py`, then `signers.py`; the format: docs/format.md, the commands: docs/witness.md.
Must not import: `trust`, `transfer` or anything above them.
"""
