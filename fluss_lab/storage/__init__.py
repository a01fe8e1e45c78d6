"""The files of remote storage, wherever they lie: on this machine's file systems, or in an object store.

In come locations (``remote.data.dir``) and the options to reach them, out go places: a `pathlib.Path`, or an `ObjectPath` in
a store that has one interface. Failures are `OSError`, of either kind.
"""
