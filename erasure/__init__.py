"""From a named dataset to an erased, certified, cached one."""

from erasure.eraser import Eraser
from erasure.erasers.identity import IdentityEraser
from erasure.erasers.leace import LeaceEraser
from erasure.moments import ClassMoments

__all__ = ["ClassMoments", "Eraser", "IdentityEraser", "LeaceEraser"]
