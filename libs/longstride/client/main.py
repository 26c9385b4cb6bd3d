"""The entry point of ``longstride``: light, so that Ctrl-C is quiet from the first moment on."""

import gc
import os
import signal
import sys

DETACHED = 130


def main() -> None:
    """Load the program, and run it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        # Nothing runs yet that could be interrupted badly, and an import that is shows a traceback.
        signal.signal(signal.SIGINT, lambda _signal, _frame: os._exit(DETACHED))
    gc.set_threshold(50_000, 20, 20)  # what is loaded stays: to look for garbage in it takes a tenth of a short command
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
