"""Streams: windows over a topic, with results in another topic, computed by Spark Structured Streaming.

    a stream's text (wire.streams.clauses) -> the texts of its stages      stages.py
    these, checked as query topics are, to one streaming plan               plan.py
    the source's rows, and marks that close windows of a quiet topic        source.py, frames.py
    windows that late records came for, calculated again from the log       expired.py
    a query's checkpoint, and how it fits what the broker has               checkpoint.py
    results and progress in one Kafka transaction                           sink.py
    one stream as it runs, and all of them                                  runner.py, manager.py

Spark keeps state and watermark. The broker knows which batches are in the topic, by a committed offset.
"""
