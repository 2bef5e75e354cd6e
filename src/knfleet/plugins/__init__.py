"""Credential plugins: small programs that kubectl and operators run to log in to a cluster."""
