"""The remote log: segments that left the tablet server's disk, or soon will."""
