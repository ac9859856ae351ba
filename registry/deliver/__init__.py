"""Answers that an app acts on: resolved, and checked for rollback, signatures and gates.

`trusted_read` is the one path for an answer that will be used; `coverage` asks it for a fleet of devices.

Start with `trusted_read.py`.
Must not import: `transfer` or anything above it.
"""
