"""Reading one table across log and lake, in Arrow."""
