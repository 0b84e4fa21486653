# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What calls raise. Each class is also what handlers written for other libraries catch."""

from __future__ import annotations


class Error(RuntimeError):
    """Base of everything this package raises about a call."""


class ShapeMismatchError(Error, ValueError):
    """Extents or numbers of dimensions that do not fit together."""


class UnsupportedDtypeError(Error, TypeError):
    """An element type, or a mix of them, that the operation does not take."""


class DeviceError(Error, ValueError):
    """Arrays on several devices, or a device that is not there."""


class ArgumentError(Error, ValueError):
    """A value out of its range, two arguments that contradict each other, or a cache that shares memory with
    another argument."""


class IntegerError(ArgumentError, UnsupportedDtypeError):
    """Fractions or floats where lengths, offsets or indices are meant: a wrong value and a wrong element type."""


class StrideError(ArgumentError):
    """Strides or an address that no kernel can use, or by which elements of a cache share memory."""


class UnsupportedError(Error, NotImplementedError):
    """A combination of options that nothing computes."""


class ResourceError(Error):
    """Memory that could not be had."""


class CommunicationError(Error):
    """A message between ranks that failed."""
