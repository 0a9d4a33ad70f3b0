"""How fast delayq and its peers are: ``python -m benchmarks``. Not installed with delayq."""
