"""A view of progress for tests."""

import threading


class SeenView:
    """A view that notes what it is given."""

    def __init__(self):
        self.lines = []
        self.closed = threading.Event()
        self.shown = threading.Event()

    def show(self, line, html):
        """Note it."""
        self.lines.append((line, html))
        self.shown.set()

    def close(self):
        """Note that it is taken away."""
        self.closed.set()

    def has_shown(self, words):
        """Return whether a line with these words was shown."""
        return any(words in line for line, _ in list(self.lines))
