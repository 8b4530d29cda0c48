"""The version of this distribution, in the one place that the build and the introspect answer read."""

__version__ = "0.1.0"
