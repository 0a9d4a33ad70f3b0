"""Tools for developing delayq; they are not installed with it."""
