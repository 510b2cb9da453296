"""Sets of exclusive resources, all or nothing.

::

    import holdall

    with holdall.hold("gpu:2", "license/maya", wait=60, reason="train") as grant:
        print(grant.units["gpu"], grant.fences["gpu"])

The same with ``async with``. A thread of its own renews the lease; ``grant.lost`` says when it is lost.
"""

from ._client import Client, acquire, hold
from ._errors import Denied, Failed, HoldallError, Lost, NeverGranted, NotGranted, Unreachable
from ._grant import Grant
from ._hold import Hold

__all__ = [
    "Client",
    "Denied",
    "Failed",
    "Grant",
    "Hold",
    "HoldallError",
    "Lost",
    "NeverGranted",
    "NotGranted",
    "Unreachable",
    "acquire",
    "hold",
]
__version__ = "0.1.0"
