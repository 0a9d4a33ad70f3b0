"""The jobs of ``delayq pipeline``, each a function that takes a session of Spark."""
