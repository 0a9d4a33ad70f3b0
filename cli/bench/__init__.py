"""``delayq bench``: how fast delayq is, compared with its bare scripts."""
