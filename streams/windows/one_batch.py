"""Makes a batch close windows by the records that it reads itself.

Spark closes the windows of a batch by the watermark that the batches before it have reached. So a result takes two
batches: one reads the record that moves the watermark past the window's end, and a second one, without records, closes
the window. The source knows the watermark after a batch before the batch runs (foreseen.py), and writes it into the
batch's offset. The class below takes the place of the query's `WatermarkTracker`, and gives a batch that watermark.

This is safe, because Spark uses two watermarks in each batch: records are late by the watermark of the batch before,
and windows close by the batch's own, after the batch's records have been added. A foreseen watermark may be too low,
then a second batch follows as before. It is never higher than what Spark itself computes after the batch.

Invariant: Spark writes a batch's watermark into its log of offsets before the batch runs, so a repeated batch has the
same one.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from barnabas.streams.windows.compiled import compiled
from barnabas.streams.windows.foreseen import FORESEEN, PLACE

_LOG = logging.getLogger(__name__)
_CLASS = "barnabas.WatermarkOfBatch"
_SOURCE = f"""
package barnabas;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.MinWatermark$;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper;
import org.apache.spark.sql.execution.streaming.runtime.WatermarkTracker;

public class WatermarkOfBatch extends WatermarkTracker {{
    private static final Pattern FORESEEN =
        Pattern.compile("\\"{PLACE}\\": *\\\\{{[^}}]*\\"{FORESEEN}\\": *(\\\\d+)");
    private final MicroBatchExecution query;

    public WatermarkOfBatch(MicroBatchExecution query) {{
        super(MinWatermark$.MODULE$, query.logicalPlan());
        this.query = query;
        setWatermark(query.watermarkTracker().currentWatermark());
    }}

    public long currentWatermark() {{
        long found = super.currentWatermark();
        scala.collection.Iterator ends = query.getLatestExecutionContext().endOffsets().valuesIterator();
        while (ends.hasNext()) {{
            Matcher foreseen = FORESEEN.matcher(((Offset) ends.next()).json());
            if (foreseen.find()) {{
                found = Math.max(found, Long.parseLong(foreseen.group(1)));
            }}
        }}
        return found;
    }}

    public static void use(StreamingQueryWrapper of) {{
        MicroBatchExecution query = (MicroBatchExecution) of.streamingQuery();
        query.watermarkTracker_$eq(new WatermarkOfBatch(query));
    }}
}}
"""
# The class, by Spark's application.
_made: dict[str, Any] = {}


def use_foreseen(spark: SparkSession, query: StreamingQuery) -> bool:
    """Make a query use the foreseen watermarks of its batches. Returns whether it does.

    Its plan has one watermark. Call this while one of its batches waits for the caller, and so does not look at its
    watermark.
    """
    try:
        jvm: Any = spark.sparkContext._jvm
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        wrapper = query._jsq
        use = _class(spark, jvm).getMethod("use", _array(gateway, jvm.java.lang.Class, wrapper.getClass()))
        use.invoke(None, _array(gateway, jvm.java.lang.Object, wrapper))
    except Exception as error:  # another version of Spark
        _LOG.warning("a result takes two batches of Spark: %s", str(error).splitlines()[0])
        return False
    return True


def _class(spark: SparkSession, jvm: Any) -> Any:
    application = str(spark.sparkContext.applicationId)
    if application not in _made:
        _made[application] = compiled(jvm, _SOURCE).getClassLoader().loadClass(_CLASS)
    return _made[application]


def _array(gateway: Any, kind: Any, value: Any) -> Any:
    made = gateway.new_array(kind, 1)
    made[0] = value
    return made
