"""Messages, gateways, and their gRPC transport."""
