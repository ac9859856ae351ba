"""The dossier of a version, made from a registry: every generated cell cites a blob or a line of a log.

`tables` quotes, and makes the tables of a version; `dossier` follows a profile and writes the directory.
"""
