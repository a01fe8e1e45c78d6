"""The gateways served by gRPC: authentication, memory budget, metrics of calls.

In: a servicer and a port.
Out: answers within the limits of the server, errors as statuses.
"""
