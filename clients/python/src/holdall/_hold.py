"""``with`` and ``async with``: asked for at the beginning of the block, given back at its end."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import threading
import warnings
from types import FrameType, TracebackType
from typing import Callable, TypeVar

from ._errors import Lost
from ._grant import Grant, current
from ._http import Abort

T = TypeVar("T")


class Hold:
    """What :func:`holdall.hold` makes: nothing is asked for before the block begins."""

    def __init__(self, acquire: Callable[[Abort | None], Grant], needs: str, interrupts: bool) -> None:
        self._acquire = acquire
        self._needs = needs
        self._interrupts = interrupts
        self._sigint: _Sigint | None = None
        self._entered = False
        self._grant: Grant | None = None
        self._outer: Grant | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelled = False

    def __enter__(self) -> Grant:
        self._begin()
        grant = self._inside(self._acquire(None))
        if self._interrupts:
            try:
                grant.interrupt_with(self._interrupting(threading.current_thread()))
            except BaseException as error:
                # It was lost before: the block does not begin.
                self.__exit__(type(error), error, error.__traceback__)
                raise
        return grant

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        grant = self._outside()
        try:
            try:
                grant.interrupt_with(None)
            finally:
                grant.release()
        except (Lost, KeyboardInterrupt):
            why = grant._lease.why
            if why is None:
                raise
            # An interruption was our own doing; any other error of the block says more than we could.
            if error is None or isinstance(error, (KeyboardInterrupt, Lost)):
                raise why from None
        finally:
            if self._sigint is not None:
                self._sigint.put_back()

    async def __aenter__(self) -> Grant:
        self._begin()
        abort = Abort()
        asked = _in_thread(lambda: self._acquire(abort))
        try:
            grant = self._inside(await asyncio.shield(asked))
        except asyncio.CancelledError:
            abort.now()
            asked.add_done_callback(_discard)
            raise
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        grant.interrupt_with(lambda: _soon(loop, self._cancel))
        return grant

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        grant = self._outside()
        task, self._task = self._task, None
        grant.interrupt_with(None)
        try:
            await asyncio.shield(_in_thread(grant.release))
        except Lost as why:
            ours = self._cancelled and isinstance(error, asyncio.CancelledError)
            if ours and task is not None and hasattr(task, "uncancel") and task.uncancel() > 0:
                return  # Somebody else has cancelled the task, too.
            if error is None or ours or isinstance(error, Lost):
                raise why from None

    def _begin(self) -> None:
        if self._entered:
            raise RuntimeError("a hold is for one block; make another one with holdall.hold(...)")
        self._entered = True

    def _inside(self, grant: Grant) -> Grant:
        self._grant, self._outer = grant, current.get()
        current.set(grant)
        return grant

    def _outside(self) -> Grant:
        grant = self._grant
        assert grant is not None, "the block has begun"
        self._grant = None
        current.set(self._outer)
        return grant

    def _interrupting(self, thread: threading.Thread) -> Callable[[], None]:
        """What ends the block that a thread is in: SIGINT where Python has signals, otherwise :class:`Lost` itself, which
        comes up between two instructions."""
        if thread is threading.main_thread():
            self._sigint = _Sigint()
            return self._sigint.send
        ident = thread.ident
        assert ident is not None, "the thread runs"

        def raise_there() -> None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(Lost))

        return raise_there

    def _cancel(self) -> None:
        if self._task is not None:
            self._cancelled = True
            self._task.cancel()

    def __del__(self) -> None:
        if not getattr(self, "_entered", True):
            text = f"holdall.hold({self._needs}) holds nothing: it is for `with` or `async with`"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)


class _Sigint:
    """Interrupts the main thread, also where SIGINT is ignored, as in what a script has begun with ``&``, or would end the
    program: then there is a handler for as long as there are such blocks. Made and put back by the main thread."""

    #: Whether the next one is from here.
    _is_ours = False
    #: How many blocks there are, in whatever order they end, and what was there before the first.
    _blocks = 0
    _before: Callable[[int, FrameType | None], object] | int | None = None

    def __init__(self) -> None:
        self._ident = threading.get_ident()
        before = signal.getsignal(signal.SIGINT)
        if before in (signal.SIG_IGN, signal.SIG_DFL):
            _Sigint._before, _Sigint._is_ours = before, False
            signal.signal(signal.SIGINT, _Sigint._handle)
        _Sigint._blocks += 1

    def send(self) -> None:
        _Sigint._is_ours = True
        signal.pthread_kill(self._ident, signal.SIGINT)

    def put_back(self) -> None:
        _Sigint._blocks -= 1
        if _Sigint._blocks == 0:
            _Sigint._restore()

    @staticmethod
    def _restore() -> None:
        if signal.getsignal(signal.SIGINT) is _Sigint._handle:
            signal.signal(signal.SIGINT, _Sigint._before)

    @staticmethod
    def _handle(number: int, frame: FrameType | None) -> None:
        if _Sigint._is_ours:
            _Sigint._is_ours = False
            raise KeyboardInterrupt
        if _Sigint._before == signal.SIG_DFL:
            _Sigint._restore()
            signal.raise_signal(number)


def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Runs what waits in a thread of its own: those of the loop may all be busy with the program's own work."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            failed = error
            _soon(loop, lambda: settle(None, failed))
        else:
            _soon(loop, lambda: settle(result, None))

    threading.Thread(target=run, name="holdall call", daemon=True).start()
    return future


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        pass  # The loop is closed: nobody waits there any more.


def _discard(asked: asyncio.Future[Grant]) -> None:
    """What was granted to somebody who no longer wants it."""
    if not asked.cancelled() and asked.exception() is None:
        asked.result()._lease.abandon()
