"""The version of this package, stated once: its metadata, the provider and the apps read it from this module."""

__version__ = "0.1.0"
