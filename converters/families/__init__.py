"""Model families: a backbone, a head for each class of the backbone and a detector, released as one version.

`export_family` locates and hashes the files that a document names, makes the members, judges them by the limits and
describes the version. `backbone`, `heads` and `detector` load or fit the members. Guide: docs/families.md.
"""
