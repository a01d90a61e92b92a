"""Transport errors: whether anything was sent, and what the record may show."""

from __future__ import annotations

import re
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.integrations.http.redirects import MaskedAddress
from holdfast.integrations.http.sent import library_of

_UNSENT = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol")
_HARMLESS = ("NetworkError", "TimeoutException", "ProxyError", "UnsupportedProtocol")
_QUOTED = re.compile(r"""b(['"]).*\1""", re.DOTALL)


def is_unsent(request: Any, error: BaseException) -> bool:
    """Say whether an error came before anything was sent; in doubt it did not."""
    if isinstance(error, (MaskedAddress, *_classes(request, _UNSENT))):
        return True
    # Of HTTP/1 it says that the head of the request is none; of HTTP/2 it may come at any time.
    return isinstance(error, library_of(request).LocalProtocolError) and not _is_of_h2(error)


def _is_of_h2(error: BaseException | None) -> bool:
    while error is not None:
        if type(error).__module__.partition(".")[0] == "h2":
            return True
        error = error.__cause__ or error.__context__
    return False


def told(request: Any, error: BaseException) -> str:
    """Return an error as it may be stored: texts of other errors may quote headers and bodies."""
    name = type(error).__name__
    if isinstance(error, HoldfastError):
        return f"{name}: {error}"
    return repr(error) if isinstance(error, _classes(request, _HARMLESS)) else name


def for_client(request: Any, error: Exception) -> Exception:
    """Return an error as the client sees it: it may leave the flow, and is stored with its text."""
    of_header = library_of(request).LocalProtocolError
    if not isinstance(error, of_header):
        return error
    shown: Exception = of_header(_QUOTED.sub("***", str(error)))
    return shown


def _classes(request: Any, names: tuple[str, ...]) -> tuple[type[BaseException], ...]:
    return tuple(getattr(library_of(request), name) for name in names)
