"""Who may call a cluster: token and TLS.

In: secrets and certificates in files.
Out: credentials for channels, and the check of a call.
"""
