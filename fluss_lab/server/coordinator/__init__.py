"""The coordinator: metadata, table lifecycle, lake snapshots and tiering states."""
