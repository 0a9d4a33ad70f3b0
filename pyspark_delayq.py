"""Registers the format "delayq" with Spark, which imports each installed module whose name begins with ``pyspark_``."""

from delayq.spark.data_source import DelayqSource as DefaultSource

__all__ = ["DefaultSource"]
