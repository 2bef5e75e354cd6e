"""What both sides of a tunnel agree on before the first frame."""

ALPN = "knfleet-tunnel/1"
"""The protocol that agents ask for in the TLS handshake."""
