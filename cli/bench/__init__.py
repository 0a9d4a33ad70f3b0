"""``delayq bench``: how quick delayq is, beside its bare scripts."""
