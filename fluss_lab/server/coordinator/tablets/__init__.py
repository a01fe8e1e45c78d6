"""Tablet servers as the coordinator knows them: who holds which bucket, and who was notified.

In: assignments, and reports of tablet servers.
Out: notifications that are repeated until they arrive.
"""
