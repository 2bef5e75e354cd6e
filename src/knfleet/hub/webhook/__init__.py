"""The hub's HTTPS server for webhooks: certificates, registration of handlers, CA injection."""
