"""Model families: a backbone, a head for each of its classes and a detector, released as one version.

`family_plan` locates and hashes what a document names; `export_family` makes the members, judges them by the limits and
describes the version. `backbone`, `heads` and `detector` load or fit the members. Guide: docs/families.md.
"""
