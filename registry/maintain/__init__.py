"""Is a registry whole and sound, what does it weigh, and how is it repaired?

`verification` reads everything and names each `Damage`, `repair` fetches good copies, `doctor` looks for `Diagnosis`es
in the surroundings, `disk_usage` says where the space goes.

Start with `verification.py`.
Must not import: `server`, `conformance`.
"""
