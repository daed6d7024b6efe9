"""The version of the package, in the one place that the build and the code both read."""

__version__ = "0.1.0"
"""Version of the package, such as "0.1.0"."""
