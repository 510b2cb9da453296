"""What can go wrong, by kind."""

from __future__ import annotations


class HoldallError(Exception):
    """Something did not work. The text is the agent's own where it has one."""


class NotGranted(HoldallError):
    """It was not granted in time, or not at once where that was asked for."""


class NeverGranted(HoldallError):
    """It can never be granted: there is no such unit, the pool is too small, it would wait for itself."""


class Lost(HoldallError):
    """A grant has ended under its holder: its use must stop."""


class Unreachable(HoldallError):
    """The agent cannot be reached, does not answer, or takes no requests."""


class Denied(HoldallError):
    """Whoever asked has no right to it."""


class Failed(HoldallError):
    """The agent refused a call, or could not carry it out."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        #: The HTTP status of the answer, if there was one.
        self.status = status
