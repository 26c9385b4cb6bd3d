"""The commands of ``longstride``, one noun a file. ``main.py`` has their table; each file is only loaded when asked for."""
