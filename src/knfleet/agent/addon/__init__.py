"""Credentials of add-ons' agents on this cluster, and their health by Lease."""
