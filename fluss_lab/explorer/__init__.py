"""The table explorer: a lab's tables in a notebook cell, by pointing and clicking, with the Python for what is shown.

In come requests of a view, small and untrusted; out go answers, each JSON of bounded size with every value as text. The
model (`explorer_model`) knows no widget; `explorer_widget` alone knows anywidget. ``view`` has what runs in the browser.
"""
