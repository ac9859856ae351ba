"""Verification, repair and diagnosis of a registry.

`verification` lists each `Damage` and each `Diagnosis`, `repair` fetches good copies. Start with `verification.py`.
Must not import: `server`.
"""
