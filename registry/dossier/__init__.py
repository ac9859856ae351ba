"""The dossier of a version, made from a registry: every generated cell cites a blob or a line of a log."""
