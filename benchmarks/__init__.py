"""Measurements, side by side in one run. They print; they never judge."""
