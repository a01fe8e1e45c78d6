"""A whole lab's files inspected while no server runs.

In: a lab's folder.
Out: findings: what is damaged, and where.
"""
