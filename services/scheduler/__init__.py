"""The scheduler: timers, timeouts, recovery of dead owners, lost hints, usage; definitions and access over gRPC."""
