"""Model families: a backbone, a detector, and a head for each class of the backbone, released as one version.

`export_family` hashes the files that a document names, makes the members, checks the document's limits and describes
the version. `backbone`, `heads` and `detector` load or fit the members. Guide: docs/families.md.
"""
