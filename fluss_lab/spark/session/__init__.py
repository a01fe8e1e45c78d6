"""The SparkSession: Java, JVM, workers and where they run.

In: a master's name and settings.
Out: a running session whose workers find this package.
"""
