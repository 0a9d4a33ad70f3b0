"""How quick delayq and its peers are: ``python -m benchmarks``. Not part of what is installed."""
