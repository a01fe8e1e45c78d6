"""Metrics of a server process, and the page that serves them.

In: counters and gauges of the node.
Out: Prometheus text over HTTP, for holders of the token.
"""
