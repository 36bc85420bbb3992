"""The native CPU kernel: optional, built with the package where there is a compiler.

    >>> import contconv.native
    >>> contconv.native.available() in (True, False)
    True

`contconv.native.ops` has the operations; `status()` says which instruction set they use, or why there are none.
"""

from contconv.native.library import available, status

__all__ = ["available", "status"]
