"""The explorer without Jupyter: its view in a page of its own, for one person on this machine.

In come HTTP requests of a browser, all of them hostile until they have shown the cookie that the link gave; out go the page, the
view's script and style, and over one socket a page the answers of a model of its own.

anywidget's own hosts were looked at first. In Jupyter's (Voila, an HTML export) anywidget runs a script from a blob and adds a style
element to the page, so that no policy without ``blob:`` and ``'unsafe-inline'`` holds, and each visit starts a kernel; marimo is a whole
notebook with a server, an editor and inline scripts. The view needs six methods of a model: `host_page.js` has them, and
tornado, which JupyterLab brings along, the socket.
"""
