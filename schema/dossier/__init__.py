"""The dossier of a version: a document for auditors in which every generated cell cites its source.

`Dossier` is the document, `DossierProfile` the table of its sections and fields, `OwnerFacts` what a person states.
A `SourceDocument` is a blob or a line of a log, from which cells are quoted.

Start with `dossier.py`. The dossier in words: docs/dossier.md.
Must not import: `formats`. Reading logs and stores is the work of `registry.dossier`.
"""
