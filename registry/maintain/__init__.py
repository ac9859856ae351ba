"""Verification, repair, diagnosis and disk usage of a registry.

`verification` reads everything and lists each `Damage`, `repair` fetches good copies, `doctor` checks the
surroundings (`Diagnosis`), `space` measures what each model takes, and frees it.

Start with `verification.py`.
Must not import: `server`.
"""
