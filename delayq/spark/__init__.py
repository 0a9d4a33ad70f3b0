"""delayq on Spark: the data source "delayq", and the jobs of ``delayq pipeline``.

It needs the extra ``spark``.
"""

import pyspark

from delayq.model.extras import install

if int(pyspark.__version__.split(".")[0]) < 4:
    raise ImportError(
        f"delayq needs PySpark 4.0 or newer, but this is PySpark {pyspark.__version__}: {install('spark')}"
    )

from delayq.spark.data_source import DelayqSource
from delayq.spark.session import register, session

__all__ = ["DelayqSource", "register", "session"]
