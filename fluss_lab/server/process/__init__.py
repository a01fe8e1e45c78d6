"""Server processes: started, found, supervised and ended.

In: a lab's folder and options.
Out: running nodes, and `server.json` that says where they listen.
"""
