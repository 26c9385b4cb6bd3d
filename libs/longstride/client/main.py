"""The entry point of ``longstride``: light, so that Ctrl-C is quiet from the first moment on."""

import os
import signal
import sys

from longstride.loading import expect_many_modules

DETACHED = 130


def main() -> None:
    """Load the program, and run it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        # Nothing runs yet that could be interrupted badly, and an import that is shows a traceback.
        signal.signal(signal.SIGINT, lambda _signal, _frame: os._exit(DETACHED))
    expect_many_modules()
    from longstride.client.application import run
    from longstride.client.screen.standard_output import guard

    guard()
    try:
        signal.signal(signal.SIGINT, before)
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = DETACHED
    sys.exit(code)


if __name__ == "__main__":
    main()
