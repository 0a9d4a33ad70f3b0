"""The tests of delayq; README.md says what is where."""
