"""Model families: a backbone, a detector and a head for each class, released as one version: docs/families.md."""
