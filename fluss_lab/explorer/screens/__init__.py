"""The screens of the explorer: what each shows of a lab, read and made ready.

In come requests and the tables that they mean; out go answers as mappings, which the model bounds and names.
"""
