"""The search for the smallest artifact that passes an evaluation."""
