"""Verification, repair, diagnosis and disk usage of a registry.

`verification` reads everything and lists each `Damage`, `repair` fetches good copies, `doctor` checks the
surroundings (`Diagnosis`), `disk_usage` lists the space that each model takes.

Start with `verification.py`.
Must not import: `server`.
"""
