"""Make the dossier of a version: its documentation. Every generated cell cites a blob or a log line of a registry."""
