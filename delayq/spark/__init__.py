"""delayq on Spark: the data source "delayq", and the jobs of ``delayq pipeline``.

It needs what ``pip install 'delayq[spark]'`` brings.
"""

from delayq.spark.data_source import DelayqSource
from delayq.spark.session import register, session

__all__ = ["DelayqSource", "register", "session"]
