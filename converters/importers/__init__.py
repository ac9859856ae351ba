"""Import existing models: loose files, directories of OpenMed's converter or of `reg`, and repositories of the Hub.

`survey` and `openmed` describe the models of a source, the files beside them, and the claims of its documents. `adopt`
places the files and compares the claims with them; a claim never counts in a model's favour. `confine` runs `adopt` in
a separate process.
"""
