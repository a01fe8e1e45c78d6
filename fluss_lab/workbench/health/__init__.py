"""The health of a machine and a lab: the doctor's checks, and what the states of buckets say.

In: the lab's folder, a connection to its server. Out: findings in words, each with what to do.
"""
