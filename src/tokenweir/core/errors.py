"""What can go wrong that is not a refusal?

A refusal is a value (``Reject``). Exceptions are for wrong settings, misuse of the library, and
states in which going on would leak or overspend.
"""

from __future__ import annotations

__all__ = ["ConfigError", "ContractError", "InvariantError", "TokenweirError"]


class TokenweirError(Exception):
    """Base of every exception this package raises on purpose; its text is one line."""


class ConfigError(TokenweirError):
    """A setting is wrong; the text names the key, the value and what is allowed."""


class ContractError(TokenweirError):
    """The caller broke the contract, for instance settled twice with different usage."""


class InvariantError(TokenweirError):
    """An account no longer adds up; going on would leak or overspend."""
