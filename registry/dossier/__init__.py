"""The dossier of a version, generated from a registry. Every generated cell cites a blob or a line of a log."""
