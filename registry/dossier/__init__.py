"""Make the dossier of a version: its documentation, in which every generated cell cites a blob or a log line of a registry."""
