"""Tools for those who work on delayq; they are not installed with it."""
