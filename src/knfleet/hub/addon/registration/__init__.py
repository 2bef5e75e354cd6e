"""Registration of the agents of add-ons: certificates, tokens, and rights on the hub."""
