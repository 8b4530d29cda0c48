"""Transports: they move bodies and headers to the endpoint and back, and hold no rule of the protocol."""
