"""The live rows of a primary-key bucket: a columnar store, and its snapshots."""
