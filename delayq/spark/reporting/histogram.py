"""Durations in fixed buckets, so that counts of several minutes or runs can be added up exactly.

Up to 63 ms each millisecond is a bucket; above that, each power of two is divided into 32. So a percentile is exact to
a millisecond or a 32nd. A bucket is named by its lower end, and none crosses a power of two, so the buckets of
`QueueStats.lateness` are unions of these.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

CUTS = 5  # 2^5 buckets in each power of two
PERCENTS = (50, 90, 99)


def bucket_of(ms: Column) -> Column:
    """Return the lower end of the bucket for a number of milliseconds; null for null."""
    whole = f.greatest(ms.cast("bigint"), f.lit(0).cast("bigint"))  # which treats null as the least value
    return f.when(ms.isNotNull(), whole - f.pmod(whole, _width(whole)))


def top_of(bucket: Column) -> Column:
    """Return the longest time in a bucket, in ms."""
    return bucket + _width(bucket) - 1


def _width(ms: Column) -> Column:
    # Use the digits of the number, as its logarithm is off by one at some powers of two.
    power = f.greatest(f.length(f.bin(ms)) - 1 - CUTS, f.lit(0))
    return f.call_function("shiftleft", f.lit(1).cast("bigint"), power)


def percentiles(histogram: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
    """Return percentiles of the times: one row per key.

    Args:
        histogram: `keys`, bucket, n, longest (seconds); several rows may have the same bucket.
        name: the prefix of the columns.

    Returns:
        The keys, and ``NAME_p50``, ``NAME_p90``, ``NAME_p99`` and ``NAME_max``, in seconds.
    """
    summed = histogram.groupBy(*keys, "bucket").agg(f.sum("n").alias("n"), f.max("longest").alias("longest"))
    group = Window.partitionBy(*keys)
    upwards = group.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    counted = summed.withColumns({"total": f.sum("n").over(group), "reached": f.sum("n").over(upwards)})
    reaches = [
        f.min(f.when(f.col("reached") * 100 >= f.col("total") * percent, top_of(f.col("bucket"))))
        .alias(f"{name}_p{percent}")
        for percent in PERCENTS
    ]  # fmt: skip
    found = counted.groupBy(*keys).agg(*reaches, f.max("longest").alias(f"{name}_max"))
    shares = {
        f"{name}_p{percent}": f.least(f.col(f"{name}_p{percent}") / 1000, f.col(f"{name}_max")) for percent in PERCENTS
    }
    return found.withColumns(shares)
