"""Model families: one backbone, one detector, and heads (one for each class) in one version. See docs/families.md."""
