"""Options and configuration: every key, its type, default and range.

In: arguments, environment, `fluss-lab.toml`, table properties.
Out: checked values, and where each came from.
"""
