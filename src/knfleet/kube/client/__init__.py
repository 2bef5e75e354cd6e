"""Requests to one API server; `verbs.Client` is what other packages use."""
