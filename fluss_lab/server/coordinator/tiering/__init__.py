"""Who tiers which table, and how far each bucket is in the lake.

In: heartbeats and reports of tierers.
Out: tables to tier, and lake offsets for tablet servers and clients.
"""
