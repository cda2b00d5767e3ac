"""Version of this distribution; all distributions of the workspace share one."""

__version__ = "0.1.0"
