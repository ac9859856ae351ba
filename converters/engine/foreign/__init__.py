"""Documents of other tools as recipes: Olive's workflows (`olive.yaml` has its passes), Orchard's `export:` section.

A field without a counterpart here is an error that names it; what became of each other one is recorded.
"""
