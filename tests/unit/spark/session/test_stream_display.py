"""Frames as a notebook shows them: a streaming one by its columns, any other by its rows."""

import pytest

from fluss_lab.spark.session.stream_display import show_streams_by_columns

pytestmark = pytest.mark.spark


def test_a_streaming_frame_shows_its_columns(spark):
    stream = spark.readStream.format("rate").load()
    for frame, text in (
        (stream, "DataFrame[timestamp: timestamp, value: bigint]"),
        (stream.select("value"), "DataFrame[value: bigint]"),
    ):
        assert repr(frame) == text, "at a prompt, before any notebook asked for HTML"
        assert frame._repr_html_() is None
        assert repr(frame) == text


def test_another_frame_shows_its_rows(spark):
    show_streams_by_columns()
    frame = spark.range(2).toDF("n")
    assert "|  n|" in repr(frame)
    html = frame._repr_html_()
    assert html.count("<tr>") == 3, html
